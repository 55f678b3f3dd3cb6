import pytest
from tests.integration.browser import start


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = start(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()
