//! A headless Chromium for tests, driven over its pipe: messages in JSON, each ended by a zero.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one page. It ends when it is dropped.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    address: String,
    sent: u64,
    /// Messages received that are not answers.
    pub(crate) events: Vec<Value>,
    profile: Option<tempfile::TempDir>,
}

impl Browser {
    pub(crate) fn start(width: u32, height: u32) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // It listens on descriptor 3, and answers on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            // What it leaves behind when it is killed goes with the directory.
            .env("TMPDIR", profile.path())
            .arg(format!("--window-size={width},{height}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut browser = Browser {
            child,
            to,
            from: BufReader::new(from),
            session: String::new(),
            address: String::new(),
            sent: 0,
            events: Vec::new(),
            profile: Some(profile),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Calls a method, and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let said = self.listen();
            if said["id"] == self.sent {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
            self.events.push(said);
        }
    }

    fn listen(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser is gone");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Opens a file, and waits until it is loaded and drawn.
    pub(crate) fn open(&mut self, page: &Path, fragment: &str) {
        self.open_address(&format!("file://{}#{fragment}", page.display()));
    }

    /// Opens an address.
    pub(crate) fn open_address(&mut self, address: &str) {
        // Another fragment alone would not load it again.
        self.navigate("about:blank");
        self.navigate(address);
        self.address = address.split('#').next().unwrap().to_owned();
        self.settle();
    }

    fn navigate(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|e| e["method"] == "Page.loadEventFired") {
            let said = self.listen();
            self.events.push(said);
        }
    }

    /// Waits until the request is shown.
    pub(crate) fn settle(&mut self) {
        self.eval(
            "Promise.resolve(panelDone).then(() => new Promise(requestAnimationFrame)) \
             .then(() => new Promise(r => setTimeout(r, 150))).then(() => panelDone).then(() => 0)",
        );
    }

    /// The value of an expression; a promise's when it is kept.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.eval(expression).as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({"type": kind, "key": key, "text": text});
            self.call("Input.dispatchKeyEvent", params);
        }
        self.settle();
    }

    pub(crate) fn click(&mut self, x: f64, y: f64) {
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
        self.settle();
    }

    /// Errors, messages on the console, and requests for anything but the page.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.settle();
        let is_complaint = |e: &&Value| match e["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") => true,
            Some("Network.requestWillBeSent") => {
                // A served page asks for its pieces.
                let url = e["params"]["request"]["url"].as_str().unwrap_or("");
                let is_piece = self.address.starts_with("http:") && url.starts_with(&self.address);
                !is_piece && (e["params"]["type"] != "Document" || !url.starts_with("file://"))
            }
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers would write into the directory while that is removed.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
        self.profile.take().unwrap().close().unwrap();
    }
}
