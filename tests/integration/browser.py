"""A real browser without a network, and what tests do with it."""

import os
from pathlib import Path

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def start(profile):
    """Chromium with an empty profile; skips the test where there is none, and fails in CI."""
    missing = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    if missing:
        message = f"NOT TESTED IN A BROWSER: {', '.join(missing)} not found; install chromium and chromium-driver"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(DRIVER)))


def resize(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    settle(browser)


def emulate(browser, media, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def settle(browser):
    """Give the page time to draw its figures again."""
    browser.execute_async_script("setTimeout(arguments[0], 300)")


def all_of(page, selector):
    return page.find_elements("css selector", selector)


def errors(browser):
    """What the page has complained of; the browser's own start page may have something to say as well."""
    return [entry for entry in browser.get_log("browser") if not entry["message"].startswith("chrome://")]
