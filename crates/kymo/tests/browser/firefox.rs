//! A headless Firefox for tests, driven by WebDriver BiDi: messages in JSON over a WebSocket.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Nothing is asked of any server but what a page asks for.
const PREFERENCES: &str = r#"
user_pref("app.update.disabledForTesting", true);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "http://127.0.0.1:9/");
user_pref("toolkit.telemetry.server", "");
"#;

/// It starts within seconds; emulated or busy machines take longer.
const LONGEST: Duration = Duration::from_secs(120);

/// A browser with one page. It ends when it is dropped.
pub(crate) struct Firefox {
    child: Child,
    socket: TcpStream,
    context: String,
    sent: u64,
    /// Messages received that are not answers.
    pub(crate) events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Firefox {
    pub(crate) fn start(width: u32, height: u32) -> Firefox {
        let profile = tempfile::tempdir().unwrap();
        std::fs::write(profile.path().join("user.js"), PREFERENCES).unwrap();
        let child = Command::new("firefox-esr")
            .args(["--headless", "--no-remote", "--remote-debugging-port", "0", "--profile"])
            .arg(profile.path())
            .arg("about:blank")
            .env("HOME", profile.path())
            .env("MOZ_HEADLESS_WIDTH", width.to_string())
            .env("MOZ_HEADLESS_HEIGHT", height.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut guard = ChildGuard(Some(child));
        let port = port(profile.path());
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(LONGEST)).unwrap();
        let child = guard.0.take().unwrap();
        let mut firefox = Firefox {
            child,
            socket,
            context: String::new(),
            sent: 0,
            events: Vec::new(),
            _profile: profile,
        };
        firefox.shake_hands(port);
        firefox.call("session.new", json!({"capabilities": {}}));
        let events = ["log.entryAdded", "network.beforeRequestSent"];
        firefox.call("session.subscribe", json!({"events": events}));
        let tree = firefox.call("browsingContext.getTree", json!({}));
        firefox.context = tree["contexts"][0]["context"].as_str().unwrap().to_owned();
        let size = json!({"width": width, "height": height});
        let view = json!({"context": firefox.context, "viewport": size});
        firefox.call("browsingContext.setViewport", view);
        firefox
    }

    fn shake_hands(&mut self, port: u16) {
        let request = format!(
            "GET /session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.socket.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    }

    /// Calls a method, and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let text = json!({"id": self.sent, "method": method, "params": params}).to_string();
        // One masked frame. A mask of zeros, which would leave the text as it is, is refused.
        let mut frame = vec![0x81];
        let length = (text.len() as u64).to_be_bytes();
        match text.len() {
            0..126 => frame.push(0x80 | length[7]),
            126..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend(&length[6..]);
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend(length);
            }
        }
        const MASK: [u8; 4] = [1, 2, 3, 4];
        frame.extend(MASK);
        frame.extend(text.bytes().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.socket.write_all(&frame).unwrap();
        loop {
            let said = self.listen();
            if said["id"] == self.sent {
                assert_eq!(said["type"], "success", "{method}: {said}");
                return said["result"].clone();
            }
            self.events.push(said);
        }
    }

    /// A message, which may come in several frames.
    fn listen(&mut self) -> Value {
        let mut text = Vec::new();
        loop {
            let mut head = [0; 2];
            self.socket.read_exact(&mut head).unwrap();
            let mut length = [0; 8];
            let size = match head[1] & 127 {
                126 => {
                    self.socket.read_exact(&mut length[6..]).unwrap();
                    u64::from_be_bytes(length)
                }
                127 => {
                    self.socket.read_exact(&mut length).unwrap();
                    u64::from_be_bytes(length)
                }
                short => short.into(),
            };
            let mut part = vec![0; size as usize];
            self.socket.read_exact(&mut part).unwrap();
            match head[0] & 15 {
                0 | 1 => text.extend(part),
                8 => panic!("the browser is gone"),
                _ => continue,
            }
            if head[0] & 0x80 != 0 {
                return serde_json::from_slice(&text).unwrap();
            }
        }
    }

    /// Opens a file, and waits until it is loaded and drawn.
    pub(crate) fn open(&mut self, page: &Path, fragment: &str) {
        // Another fragment alone would not load it again.
        for url in ["about:blank", &format!("file://{}#{fragment}", page.display())] {
            let navigate = json!({"context": self.context, "url": url, "wait": "complete"});
            self.call("browsingContext.navigate", navigate);
        }
        self.settle();
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
        // Values are described one by one otherwise.
        let text = format!("(async () => JSON.stringify(await ({expression})))()");
        let params = json!({
            "expression": text, "awaitPromise": true, "target": {"context": self.context},
        });
        let answer = self.call("script.evaluate", params);
        assert_eq!(answer["type"], "success", "{expression}: {answer}");
        let value = answer["result"]["value"].as_str();
        value.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    }

    /// A picture of the page as PNG in base64.
    pub(crate) fn screenshot(&mut self) -> String {
        let params = json!({"context": self.context});
        let taken = self.call("browsingContext.captureScreenshot", params);
        taken["data"].as_str().unwrap().to_owned()
    }

    /// Messages on the console, errors, and requests for anything but the page.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.settle();
        let is_complaint = |e: &&Value| match e["method"].as_str() {
            Some("log.entryAdded") => true,
            Some("network.beforeRequestSent") => {
                let url = e["params"]["request"]["url"].as_str().unwrap_or("");
                !url.starts_with("file://") && url != "about:blank"
            }
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }
}

/// A browser that does not come up is ended, too.
struct ChildGuard(Option<Child>);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads the port on which it listens, which it writes into its profile.
fn port(profile: &Path) -> u16 {
    let file = profile.join("WebDriverBiDiServer.json");
    let began = Instant::now();
    loop {
        let told = std::fs::read(&file).unwrap_or_default();
        if let Ok(told) = serde_json::from_slice::<Value>(&told)
            && let Some(port) = told["ws_port"].as_u64()
        {
            return port as u16;
        }
        assert!(began.elapsed() < LONGEST, "Firefox does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
