//! A page of events of the scheduler, system calls and samples: how long it takes to write, in how
//! much memory, and how large it is; and how soon a served one shows something.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Effort;
use super::inputs::statistics;
use super::measure::{interleaved, output};
use super::rows::{Bench, Row, megabytes, seconds};

impl Bench<'_> {
    /// `kymo view -o`; no peer writes such a page.
    pub(crate) fn view(&self) -> anyhow::Result<Vec<Row>> {
        let path = self.dir().join("view.data");
        let page = self.dir().join("view.html");
        let measured = self.page_of_events(&path, &page);
        for file in [path, page] {
            if let Err(e) = std::fs::remove_file(&file)
                && measured.is_ok()
            {
                return Err(e).with_context(|| file.display().to_string());
            }
        }
        measured
    }

    fn page_of_events(
        &self,
        path: &std::path::Path,
        page: &std::path::Path,
    ) -> anyhow::Result<Vec<Row>> {
        // A round trip makes some 11 events.
        let trips = if self.effort() == Effort::Full { "900000" } else { "9000" };
        let events = "sched:sched_switch,sched:sched_waking,raw_syscalls:*,cpu-clock";
        let mut record = self.kymo_with(&["record", "-q", "-m", "4096", "-e", events, "-g", "-o"]);
        // One CPU switches at each message, and the trace is of known tasks alone.
        record.arg(path).args(["--", "taskset", "-c", "0", "perf", "bench", "sched", "pipe", "-l"]);
        record.arg(trips);
        output(record)?;
        let counted = statistics(path)?;
        let kymo = || {
            let mut view = self.kymo_with(&["view", "--force", "-i", "view.data", "-o"]);
            view.arg("view.html");
            view
        };
        let costs = interleaved(self.rounds(3), &[&kymo])?;
        let cost = costs.first().context("no round")?;
        let size = std::fs::metadata(page).with_context(|| page.display().to_string())?.len();
        let recorded = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        let (first, whole) = self.served()?;
        let served = Row {
            what: format!(
                "`view` of the same ({}): until an address has a picture, and until all is in it",
                megabytes(recorded)
            ),
            kymo: format!("{}, {}", seconds(first), seconds(whole)),
            verdict: "goal of 1 GB: 1 s until the first".to_owned(),
            ..Row::default()
        };
        let written = Row {
            what: format!(
                "`view -o page.html`, {} events ({} recorded): time, peak memory, size",
                counted.samples,
                megabytes(recorded)
            ),
            kymo: format!(
                "{}, {}, {}",
                seconds(cost.time.as_secs_f64()),
                megabytes(cost.peak),
                megabytes(size)
            ),
            verdict: "goal of 10 M events: 3 s, 300 MB, 80 MB".to_owned(),
            ..Row::default()
        };
        Ok(vec![written, served])
    }

    /// Seconds from exec until the address of a served page answers with a picture of what was
    /// read so far, and until it answers with the page.
    fn served(&self) -> anyhow::Result<(f64, f64)> {
        let mut command = self.kymo_with(&["view", "-i", "view.data"]);
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut server = Server(command.spawn().context("cannot run kymo view")?);
        let lines = BufReader::new(server.0.stderr.take().context("no output")?).lines();
        let mut words = lines
            .map_while(Result::ok)
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>());
        let address = words.find(|word| word.starts_with("http://")).context("no address")?;
        let rest = address.trim_start_matches("http://");
        let (host, path) = rest.split_once('/').context("no path")?;
        let mut first = None;
        loop {
            let page = get(host, path)?;
            let now = start.elapsed();
            let is_whole = page.contains("id=\"head\"");
            if is_whole || page.contains("<path d=\"M") {
                first.get_or_insert(now);
            }
            if let (Some(first), true) = (first, is_whole) {
                return Ok((first.as_secs_f64(), now.as_secs_f64()));
            }
            if now > Duration::from_secs(600) {
                bail!("no page after {now:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Response to a path from a server on this machine.
fn get(host: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(host).with_context(|| host.to_owned())?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
