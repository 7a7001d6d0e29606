# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven through chromedriver's own protocol (WebDriver): no package of Python is needed."""
import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

MISSING = ("{} is not there: ./dev test installs it, as does apt-get install chromium chromium-driver; "
           "deft report is tested in it")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014",
        "Down": "\ue015", "Tab": "\ue004"}


class Browser:
    def __init__(self, dark=False, size=(1440, 900)):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        driver = shutil.which("chromedriver")
        if not program:
            raise SystemExit(MISSING.format("chromium"))
        if not driver:
            raise SystemExit(MISSING.format("chromedriver"))
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.base = None
        for text in self.process.stdout:
            if "started successfully on port" in text:
                self.base = "http://127.0.0.1:" + text.rstrip().rstrip(".").split()[-1]
                break
        if not self.base:
            raise SystemExit("chromedriver does not start")
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", f"--window-size={size[0]},{size[1]}"]
        made = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": program, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"}, "unhandledPromptBehavior": "ignore"}}})
        self.session = "/session/" + made["sessionId"]
        self.size(*size)
        self.colours("dark" if dark else "light")

    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(json.load(e)["value"]["message"].split("\n")[0]) from None

    def post(self, path, **body):
        return self.send("POST", self.session + path, body)

    def cdp(self, name, **parameters):
        return self.post("/goog/cdp/execute", cmd=name, params=parameters)

    def size(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        self.post("/url", url="file://" + path)

    def run(self, script, *arguments):
        return self.post("/execute/sync", script=script, args=list(arguments))

    def wait(self, script, what, seconds=30):
        """Until the script gives what is true; that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise RuntimeError(f"waited {seconds} s for {what}")

    def click(self, selector):
        found = self.post("/element", using="css selector", value=selector)
        self.post(f"/element/{found[ELEMENT]}/click")

    def keys(self, *keys):
        """Presses keys by name or character, a longer text letter by letter."""
        actions = []
        for k in keys:
            for c in [KEYS[k]] if k in KEYS else k:
                actions += [{"type": "keyDown", "value": c}, {"type": "keyUp", "value": c}]
        self.post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def complaints(self):
        """What the console was told since the last time, warnings and errors."""
        return [e["message"] for e in self.post("/se/log", type="browser") if e["level"] in ("SEVERE", "WARNING")]

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("GET", self.session + "/screenshot")))

    def close(self):
        try:
            self.send("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait(10)
