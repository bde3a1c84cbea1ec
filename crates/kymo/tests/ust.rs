//! Programs with tracepoints of their own, as `kymo` sees them: this test binary is
//! started again as the program, in a shared directory of the test's own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, peer, require};
use kymo_tracepoint::{Symbol, emit, tracepoint, tracepoint_class, tracepoint_enum};

tracepoint! {
    /// A step of the work.
    pub work: step(number: u64, name: &str) {
        fields { number: u64 = number, name: str = name, half: f64 = number as f64 / 2.0 }
        print "step {number} is {name}"
    }
}

tracepoint! {
    work: idle(number: u64) {
        fields { number: u64 = number }
        print "{number:x}"
    }
}

tracepoint_enum! {
    /// Means of payment.
    pub enum Payment: u8 { Cash = 1, Card = 2 }
}

tracepoint_class! {
    every: kind(id: u64, name: &str) {
        fields {
            id: u64 = id,
            name: str = name,
            euros: f64 = id as f64 / 4.0,
            cents: i32 = 7 - id as i32,
            large: bool = id > 2,
            payment: Payment = if id % 2 == 0 { Payment::Card } else { Payment::Cash },
            digits: [u8; 4] = &(id as u32).to_be_bytes(),
            history: [u16] = &[1, 2, id as u16][..id as usize % 4],
            from: Symbol = Symbol::from(mark_of_this_program as *const ()),
            nowhere: Symbol = Symbol::from(8 as *const ()),
        }
        print "{id} is {id:x} {{{name}}}: {euros}, {cents} {cents:x}, {large}, {payment} {payment:x}, {digits} {digits:x}, {history}, {from} {nowhere} {other}"
    }
    events {
        /// An event with fields of every kind.
        sentence;
    }
}

tracepoint! {
    every: plain(id: u64, name: &str) {
        fields {
            id: u64 = id,
            name: str = name,
            large: bool = id > 2,
            payment: Payment = if id % 2 == 0 { Payment::Card } else { Payment::Cash },
            history: [u16] = &[1, 2, id as u16][..id as usize % 4],
            from: Symbol = Symbol::from(mark_of_this_program as *const ()),
        }
        print ""
    }
}

tracepoint! {
    every: fixed(id: u64) {
        fields { id: u64 = id, small: i8 = (id as i8).wrapping_neg(), large: bool = id > 2 }
        print "{small} {small:x} {id} {large} }}"
    }
}

/// A function with a name that fields can be shown to hold.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn mark_of_this_program() {}

const ROLE: &str = "KYMO_TEST_STEPS";

/// The program: a given number of steps, then it waits to be killed on request (`+`); with `?` it
/// reports first that a reader listens, and waits for the end of its input.
#[test]
fn role() {
    let Some(steps) = std::env::var(ROLE).ok() else { return };
    if steps == "loop" {
        // Every number often enough, until it is killed.
        let parent = std::os::unix::process::parent_id();
        for id in (0..1100).cycle() {
            emit!(fixed(id));
            if id == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A failing test kills no process.
            if id == 0 && std::os::unix::process::parent_id() != parent {
                return;
            }
        }
    }
    if let Some(rounds) = steps.strip_suffix('!') {
        for id in 0..rounds.parse().unwrap() {
            let name = format!("customer \"{id}\"\n");
            emit!(sentence(id, &name));
            emit!(plain(id, &name));
            emit!(fixed(id));
        }
        return;
    }
    let asks = steps.ends_with('?');
    let stays = asks || steps.ends_with('+');
    let steps = steps.trim_end_matches(['+', '?']);
    if stays {
        // Until a reader listens nothing is to be counted.
        while !step::enabled() || (asks && !idle::enabled()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    if asks {
        println!("heard");
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    }
    for i in 0..steps.parse().unwrap() {
        emit!(step(i, if i % 2 == 0 { "even" } else { "odd" }));
        emit!(idle(i));
    }
    if stays {
        println!("done");
        std::thread::sleep(Duration::from_secs(100));
    }
}

/// A shared directory.
struct UstDirectory(tempfile::TempDir);

impl UstDirectory {
    fn new() -> UstDirectory {
        UstDirectory(tempfile::tempdir().unwrap())
    }

    fn program(&self) -> Vec<String> {
        let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        [me, "--exact".into(), "role".into(), "--nocapture".into()].into()
    }

    fn kymo(&self, args: &[&str], steps: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).env("KYMO_UST_DIR", self.0.path()).env(ROLE, steps);
        command
    }

    /// kymo with the program as its command.
    fn trace(&self, args: &[&str], steps: &str) -> Output {
        let program = self.program();
        let mut all = vec!["trace"];
        all.extend(args);
        all.push("--");
        all.extend(program.iter().map(String::as_str));
        let output = self.kymo(&all, steps).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn start(&self, steps: &str) -> Child {
        let program = self.program();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).env("KYMO_UST_DIR", self.0.path()).env(ROLE, steps);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Files left in the shared directory: programs, channel configurations.
    fn left(&self) -> Vec<String> {
        let uid = std::fs::read_dir(self.0.path()).unwrap();
        let user = uid
            .flatten()
            .map(|e| e.path())
            .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kymo-")));
        let names = |p: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(p).into_iter().flatten().flatten();
            entries.map(|e| e.file_name().into_string().unwrap()).collect()
        };
        let Some(user) = user else { return Vec::new() };
        let mut left = names(&user);
        left.retain(|n| n != "wanted");
        left.extend(names(&user.join("wanted")));
        left
    }
}

/// Stops a process, and waits until it stands still.
fn stop(child: &Child) {
    let id = child.id();
    assert!(Command::new("kill").args(["-STOP", &id.to_string()]).status().unwrap().success());
    let stopped = |task: &Path| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    until("it stands still", || {
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
        tasks.flatten().all(|task| stopped(&task.path()))
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// babeltrace2's lines, which has nothing to complain of.
fn babeltrace(directory: &str) -> Vec<String> {
    let output = Command::new("babeltrace2").arg(directory).output().unwrap();
    assert_eq!(text(&output.stderr), "", "{directory}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn events_of_a_command_are_shown_in_order_and_filtered_in_the_program() {
    if !require(&[]) {
        return;
    }
    let place = UstDirectory::new();
    let shown = text(&place.trace(&["-u", "work:step", "-q"], "100").stdout);
    let payloads: Vec<&str> =
        shown.lines().filter_map(|l| l.split_once("work:step: ").map(|(_, p)| p)).collect();
    let expected: Vec<String> = (0..100)
        .map(|i| format!("step {i} is {}", if i % 2 == 0 { "even" } else { "odd" }))
        .collect();
    assert_eq!(payloads, expected);
    let filtered = place.trace(
        &["-u", "work", "--filter", "number >= 90 && name == \"od?\"", "--json", "-q"],
        "100",
    );
    let objects: Vec<serde_json::Value> = text(&filtered.stdout)
        .lines()
        .filter(|l| l.starts_with('{'))
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let numbers: Vec<u64> =
        objects.iter().map(|o| o["fields"]["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [91, 93, 95, 97, 99]);
    assert_eq!(objects[0]["fields"]["half"], 45.5);
    assert_eq!(place.left(), [""; 0], "nothing is left behind");
}

#[test]
fn a_directory_holds_what_babeltrace2_reads_the_same() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let place = UstDirectory::new();
    let directory = place.path("trace");
    place.trace(&["-u", "work:*", "-o", &directory, "--buffer-size", "64M"], "50000");
    let lines = babeltrace(&directory);
    assert_eq!(lines.len(), 100_000);
    let mine = place.kymo(&["script", &directory], "").output().unwrap();
    let mine = text(&mine.stdout);
    assert_eq!(mine.lines().count(), 100_000);
    for (i, pair) in lines.chunks(2).enumerate() {
        let name = if i % 2 == 0 { "even" } else { "odd" };
        let half = i as f64 / 2.0;
        assert!(
            pair[0].ends_with(&format!("{{ number = {i}, name = \"{name}\", half = {half} }}")),
            "{}",
            pair[0]
        );
        assert!(pair[1].contains("work:idle:"), "{}", pair[1]);
    }
    let again = place.kymo(&["trace", "-u", "work:*", "-o", &directory, "--", "true"], "");
    let mut again = again;
    let refused = again.output().unwrap();
    assert!(!refused.status.success() && text(&refused.stderr).contains("not empty"));
    assert_eq!(place.left(), [""; 0]);
}

/// Text and JSON of `every:*`, without what differs from run to run.
fn every(text: &str) -> (Vec<String>, Vec<serde_json::Value>) {
    let payload = |line: &str| Some(line.split_once(": every:")?.1.to_owned());
    let lines = text.lines().filter_map(payload).collect();
    let object = |line: &str| {
        let mut object: serde_json::Value = serde_json::from_str(line).ok()?;
        let members = object.as_object_mut()?;
        ["time", "pid", "tid", "cpu"].iter().for_each(|name| _ = members.remove(*name).unwrap());
        assert!(members.remove("context").unwrap()["vtid"].as_u64().is_some());
        if let Some(from) = members["fields"].get_mut("from") {
            assert!(from.as_object_mut().unwrap().remove("value").unwrap().is_u64());
        }
        Some(object)
    };
    (lines, text.lines().filter_map(object).collect())
}

/// Fields of a program's events are the same live, from the file, and from the file of a program
/// that ended before it was read; babeltrace2 reads the same values.
#[test]
fn an_event_reads_the_same_live_and_from_the_file() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let place = UstDirectory::new();
    let script = |args: &[&str]| {
        let output = place.kymo(&[&["script"], args].concat(), "").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let due_text = [
        "sentence: 2 is 0x2 {customer \"2\"\\n}: 0.5, 5 0x5, false, Card 0x2, [0, 0, 0, 2] \
         [0x0, 0x0, 0x0, 0x2], [1, 2], mark_of_this_program+0x0 0x8 {other}",
        "plain: id=2 name=\"customer \\\"2\\\"\\n\" large=false payment=Card(2) history_length=2 \
         history={1,2} from=mark_of_this_program+0x0",
        "fixed: -2 0xfe 2 false }",
        "sentence: 3 is 0x3 {customer \"3\"\\n}: 0.75, 4 0x4, true, Cash 0x1, [0, 0, 0, 3] \
         [0x0, 0x0, 0x0, 0x3], [1, 2, 3], mark_of_this_program+0x0 0x8 {other}",
        "plain: id=3 name=\"customer \\\"3\\\"\\n\" large=true payment=Cash(1) history_length=3 \
         history={1,2,3} from=mark_of_this_program+0x0",
        "fixed: -3 0xfd 3 true }",
    ];
    let filter = ["-u", "every:*", "--filter", "id >= 2"];
    let live = every(&text(&place.trace(&[&filter[..], &["-q"]].concat(), "4!").stdout)).0;
    assert_eq!(live, due_text);
    let json = every(&text(&place.trace(&[&filter[..], &["-q", "--json"]].concat(), "4!").stdout));
    let objects = json.1;
    assert_eq!(objects.len(), 6);
    for (object, due) in objects.iter().zip(&due_text) {
        let message = object.get("message").map(|m| m.as_str().unwrap());
        let (event, sentence) = due.split_once(": ").unwrap();
        assert_eq!(message, Some(sentence).filter(|_| event != "plain"), "{object}");
        assert_eq!(object["event"], format!("every:{event}"));
    }
    assert_eq!(
        objects[3]["fields"],
        serde_json::json!({
            "id": 3, "name": "customer \"3\"\n", "euros": 0.75, "cents": 4, "large": true,
            "payment": {"label": "Cash", "value": 1}, "digits": [0, 0, 0, 3],
            "history_length": 3, "history": [1, 2, 3],
            "from": {"label": "mark_of_this_program+0x0"}, "nowhere": 8,
        })
    );
    // A tool that drains while the program runs.
    let drained = place.path("drained");
    place.trace(&[&filter[..], &["-o", &drained]].concat(), "4!");
    // A session that is not read before the program has ended.
    let session = |args: &[&str]| {
        let output = place.kymo(&[&["session"], args].concat(), "").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    session(&["create", "box", "-u", "every:*", "--filter", "id >= 2"]);
    session(&["start", "box"]);
    let mut program = place.start("4!");
    assert!(program.wait().unwrap().success());
    let snapshot = place.path("snapshot");
    session(&["snapshot", "box", "-o", &snapshot]);
    session(&["destroy", "box"]);
    assert_eq!(place.left(), ["sessions"]);
    for trace in [&drained, &snapshot] {
        assert_eq!(every(&script(&[trace])).0, due_text, "{trace}");
        assert_eq!(every(&script(&["--json", trace])).1, objects, "{trace}");
        let theirs = babeltrace(trace);
        assert_eq!(theirs.len(), 6);
        let due = "id = 3, name = \"customer \\\"3\\\"\\n\", euros = 0.75, cents = 4, \
                   large = ( \"true\" : container = 1 ), payment = ( \"Cash\" : container = 1 ), \
                   digits = [ [0] = 0, [1] = 0, [2] = 0, [3] = 3 ], history_length = 3, \
                   history = [ [0] = 1, [1] = 2, [2] = 3 ], from = 0x";
        assert!(theirs[3].contains(due) && theirs[3].contains("nowhere = 0x8 }"), "{}", theirs[3]);
        assert!(theirs[5].contains("{ id = 3, small = -3, large = ( \"true\""), "{}", theirs[5]);
    }
}

#[test]
fn a_program_that_runs_is_listed_and_traced_and_runs_on() {
    if !require(&[]) {
        return;
    }
    let place = UstDirectory::new();
    let mut program = place.start("1000+");
    let listed = || text(&place.kymo(&["list", "-v", "ust"], "").output().unwrap().stdout);
    until("the program is listed", || listed().contains("work:step"));
    let list = listed();
    assert!(list.contains(&format!("pid {} ", program.id())), "{list}");
    assert!(list.contains("A step of the work.") && list.contains("[User event]"), "{list}");
    let traced = place
        .kymo(&["trace", "-u", "work:step", "-n", "1000", "-p", &program.id().to_string()], "")
        .output()
        .unwrap();
    assert_eq!(text(&traced.stdout).lines().count(), 1000);
    assert!(program.try_wait().unwrap().is_none(), "it runs on");
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn a_filter_that_fits_no_event_is_refused_or_said_when_the_program_comes() {
    if !require(&[]) {
        return;
    }
    let place = UstDirectory::new();
    let filters = [
        ("number > 1 && colour == 7", "stays off: it has no field colour (fields: number,"),
        ("name == 3", "its field name is a text, not a number"),
        ("number != \"odd\"", "its field number is a number, not a text"),
    ];
    // The program comes later than the filter: it runs as it would, and the ledger says it.
    for (filter, says) in filters {
        let traced = place.trace(&["-u", "work:step", "--filter", filter], "10");
        let said = text(&traced.stderr);
        let (live, ledger) = said.split_once("Trust:").unwrap_or_else(|| panic!("{said}"));
        assert!(ledger.contains("work:step") && ledger.contains(says), "{filter}: {said}");
        assert!(live.is_empty() || live.contains(says), "{filter}: {said}");
    }
    // The program is there: nothing is begun.
    let mut program = place.start("1000+");
    let listed = || text(&place.kymo(&["list", "-v", "ust"], "").output().unwrap().stdout);
    until("the program is listed", || listed().contains("work:step"));
    let pid = program.id().to_string();
    for (filter, says) in filters {
        let args = ["trace", "-u", "work:step", "--filter", filter, "-p", &pid];
        let refused = place.kymo(&args, "").output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{filter}: {said}");
        assert!(said.contains(says), "{filter}: {said}");
        // The caret stands below the field.
        let lines: Vec<&str> = said.lines().collect();
        let caret = lines.iter().position(|l| l.trim() == "^").unwrap_or_else(|| panic!("{said}"));
        let column = lines[caret].find('^').unwrap();
        let field = says.split_whitespace().skip_while(|w| *w != "field").nth(1).unwrap();
        assert!(lines[caret - 1][column..].starts_with(field), "{filter}: {said}");
    }
    assert!(program.try_wait().unwrap().is_none(), "it runs on");
    // One of the events has the field: it is shown, and the other one is named.
    let args = ["trace", "-u", "work:*", "--filter", "name == \"od?\"", "-n", "5", "-p", &pid];
    let some = place.kymo(&args, "").output().unwrap();
    assert_eq!(text(&some.stdout).lines().count(), 5, "{}", text(&some.stderr));
    assert!(text(&some.stderr).contains("work:idle stays off: it has no field name"));
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn what_a_killed_program_wrote_is_recovered() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let place = UstDirectory::new();
    let mut program = place.start("1000?");
    until("the program is there", || {
        text(&place.kymo(&["list", "ust"], "").output().unwrap().stdout).contains("work:step")
    });
    // A tool that dies before it has taken anything.
    let mut tool = place.kymo(&["trace", "-u", "work:*", "-o", &place.path("unfinished")], "");
    let mut tool = tool.stderr(Stdio::null()).spawn().unwrap();
    let mut output = program.stdout.take().unwrap();
    let mut hear = |word: &[u8]| {
        let mut said = Vec::new();
        // The harness prints lines of its own before.
        while !said.ends_with(word) {
            let mut byte = [0];
            std::io::Read::read_exact(&mut output, &mut byte).unwrap();
            said.push(byte[0]);
        }
    };
    hear(b"heard");
    // From here on it takes nothing.
    stop(&tool);
    drop(program.stdin.take());
    hear(b"done");
    tool.kill().unwrap();
    tool.wait().unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let directory = place.path("recovered");
    let output = place.kymo(&["session", "recover", "-o", &directory], "").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = babeltrace(&directory);
    assert!(lines.last().unwrap().ends_with("{ number = 999 }"), "{:?}", lines.last());
    assert_eq!(lines.len(), 2000, "{}", text(&output.stderr));
    // The next tool clears up behind the dead one.
    place.trace(&["-u", "work:*", "-q"], "1");
    assert_eq!(place.left(), [""; 0]);
}

/// One run in both versions of CTF: readers of either see the same events.
#[test]
fn both_versions_of_ctf_say_the_same_of_a_run() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let place = UstDirectory::new();
    let ok = |args: &[&str]| {
        let output = place.kymo(args, "").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let _ = ok(&["session", "create", "box", "-u", "every:*"]);
    let _ = ok(&["session", "start", "box"]);
    assert!(place.start("200!").wait().unwrap().success());
    // The program's rings stay when they are read.
    let (first, second) = (place.path("v1"), place.path("v2"));
    let _ = ok(&["session", "recover", "--keep", "-o", &first]);
    let _ = ok(&["session", "recover", "--keep", "--ctf", "2", "-o", &second]);
    let snapshot = place.path("snapshot");
    let _ = ok(&["session", "snapshot", "box", "--ctf", "2", "-o", &snapshot]);
    let _ = ok(&["session", "destroy", "box"]);
    let metadata = |directory: &str| {
        let find = |path: &Path| {
            let mut trace = path.to_owned();
            while !trace.join("metadata").is_file() {
                let mut entries = std::fs::read_dir(&trace).unwrap().flatten();
                trace = entries.find(|e| e.path().is_dir()).unwrap().path();
            }
            trace.join("metadata")
        };
        std::fs::read(find(Path::new(directory))).unwrap()
    };
    assert!(metadata(&first).starts_with(b"/* CTF 1.8 */"));
    let due = (every(&ok(&["script", &first])), every(&ok(&["script", "--json", &first])));
    assert_eq!((due.0.0.len(), due.1.1.len()), (600, 600));
    for trace in [&second, &snapshot] {
        assert!(metadata(trace).starts_with(b"\x1e{"), "{trace}");
        let read = (every(&ok(&["script", trace])), every(&ok(&["script", "--json", trace])));
        assert_eq!(read, due, "{trace}");
        let listed = |path: &str| -> Vec<String> {
            let text = ok(&["list", "-v", "-i", path]);
            let lines = text.lines().map(str::trim);
            // Ranges of truth values and the order of names are those of the format.
            lines.filter(|l| !l.contains(" = ")).map(str::to_owned).collect()
        };
        assert_eq!(listed(trace), listed(&first), "{trace}");
    }
    let newest = peer("babeltrace2");
    if !newest.is_newest() {
        return;
    }
    let lines = |directory: &str| {
        let out = newest.run(["--clock-cycles", "--no-delta", directory]).success();
        assert_eq!(out.stderr, "");
        // CTF 1.8 has no truth values but an enumeration of their names.
        let plain = out.stdout.replace("( \"true\" : container = 1 )", "true");
        plain.replace("( \"false\" : container = 0 )", "false")
    };
    let theirs = lines(&second);
    assert_eq!(theirs.lines().count(), 600);
    assert_eq!(theirs, lines(&first));
    assert_eq!(theirs, lines(&snapshot));
}

/// A session's filters may be changed more often than rings have numbers, while the program runs
/// and the rings are not read: what happens under the last filter is there.
#[test]
fn a_session_is_changed_three_hundred_times() {
    if !require(&[]) {
        return;
    }
    let place = UstDirectory::new();
    let session = |args: &[&str]| {
        let output = place.kymo(&[&["session"], args].concat(), "").output().unwrap();
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {errors}");
        said + &errors
    };
    session(&["create", "box", "--buffer-size", "64K", "-u", "every:never"]);
    session(&["enable", "box", "-u", "every:fixed", "--filter", "id == 0"]);
    session(&["start", "box"]);
    let mut program = place.start("loop");
    let rings = || {
        let top = std::fs::read_dir(place.0.path()).unwrap().flatten().map(|e| e.path());
        let of_user = |p: &std::path::PathBuf| p.to_string_lossy().contains("/kymo-");
        let users = top.filter(of_user).flat_map(std::fs::read_dir);
        let all = users.flat_map(|d| d.flatten()).map(|e| e.path());
        let files = all.filter(|p| p.join("control").exists()).flat_map(std::fs::read_dir);
        let files = files.flat_map(|d| d.flatten());
        files.filter(|f| f.file_name().to_string_lossy().starts_with("ring-")).count()
    };
    until("the program is there", || rings() > 0);
    let mut given_up = false;
    for change in 1..=300 {
        let filter = format!("id == {change}");
        given_up |= session(&["enable", "box", "-u", "every:fixed", "--filter", &filter])
            .contains("were removed before they were taken");
    }
    assert!(rings() <= 255);
    // Nothing of the rings before is lost without a word.
    assert!(given_up, "three hundred rings with events, and as many are kept");
    let snapshot = |name: &str| {
        let trace = place.path(name);
        session(&["snapshot", "box", "-o", &trace]);
        let output = place.kymo(&["script", &trace], "").output().unwrap();
        let shown = text(&output.stdout);
        let numbers = shown.lines().filter_map(|l| {
            l.split_once("every:fixed: ")?.1.split(' ').nth(2)?.parse::<u64>().ok()
        });
        numbers.collect::<std::collections::BTreeSet<u64>>()
    };
    until("the last filter's events are there", || {
        let name = format!("now-{}", rings());
        let _ = std::fs::remove_dir_all(place.path(&name));
        snapshot(&name).contains(&300)
    });
    // What was taken is nobody's any more, and the numbers can be had again.
    assert_eq!(rings(), 1);
    for change in 1..=300 {
        let filter = format!("id == {}", 5000 + change);
        // The ring of filter 300 has events since the snapshot: it is given up, and said so, when
        // its number is needed again.
        session(&["enable", "box", "-u", "every:fixed", "--filter", &filter]);
    }
    assert!(rings() <= 3, "of filters that nothing passes there are no rings: {}", rings());
    session(&["enable", "box", "-u", "every:fixed", "--filter", "id == 7"]);
    until("they are there, too", || {
        let _ = std::fs::remove_dir_all(place.path("again"));
        snapshot("again").contains(&7)
    });
    session(&["destroy", "box"]);
    program.kill().unwrap();
    program.wait().unwrap();
}

/// A program that may not have the memory for its ring is said to have lost its events, also if it
/// ends immediately.
#[test]
fn a_limit_of_memory_is_named() {
    let place = UstDirectory::new();
    let program = place.program().join(" ");
    let limited = format!("ulimit -v 250000; exec {program}");
    for options in [&[][..], &["-o", "out"]] {
        let ring = ["trace", "-u", "work:step", "--buffer-size", "256M"];
        let command = ["--", "sh", "-c", &limited];
        let mut trace = place.kymo(&[&ring, options, &command].concat(), "1000");
        let scratch = tempfile::tempdir().unwrap();
        let output = trace.current_dir(scratch.path()).output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(
            said.contains("lost: 1000 events lost: a program may not have the memory"),
            "{said}"
        );
        assert!(said.contains("ulimit -v") && !said.contains("make room"), "{said}");
    }
}

/// If the shared directory is full, the advice is to make room there.
#[test]
fn a_full_shared_directory_is_named() {
    if !require(&[Need::Root]) {
        return;
    }
    let place = UstDirectory::new();
    let program = place.program().join(" ");
    let mount = format!("mount -t tmpfs -o size=1M none {}", place.path(""));
    for options in ["", "-o out"] {
        let kymo = env!("CARGO_BIN_EXE_kymo");
        let trace = format!("{kymo} trace -u work:step --buffer-size 4M {options} -- {program}");
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", &format!("{mount} && {trace}")]);
        shell.env("KYMO_UST_DIR", place.0.path()).env(ROLE, "1000");
        let scratch = tempfile::tempdir().unwrap();
        shell.current_dir(scratch.path());
        let output = shell.output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        let shared = place.0.path().display().to_string();
        assert!(said.contains(&format!("make room in {shared}")), "{said}");
        assert!(said.contains("1000 events"), "{said}");
        assert!(!said.contains("--buffer-size"), "{said}");
    }
}
