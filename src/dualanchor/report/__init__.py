"""What is shown: figures of results."""
