//! Sandbox of commands that read recordings, and the rights that they keep: recordings are foreign
//! bytes, which root reads, too.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches as _};
use kymo_kernel::output_file::OutputPlace;
use kymo_kernel::sandbox::Sandbox;
use kymo_symbols::BuildIdDirectory;
use kymo_symbols::cache::SymbolCache;
use kymo_symbols::debuginfod::ClientConfig;

use crate::commands::sql;

/// The flag of those who want all rights.
pub(crate) const NO_SANDBOX: &str = "no-sandbox";

/// Commands that read recordings and start nothing.
const READERS: [&str; 12] = [
    "data",
    "report",
    "script",
    "sql",
    "export",
    "annotate",
    "convert",
    "evlist",
    "buildid-list",
    "inject",
    "bundle",
    "archive",
];

/// Those of them that look for no code of processes.
const WITHOUT_SYMBOLS: [&str; 2] = ["evlist", "buildid-list"];

/// Answers from recordings, unless they are asked for what happens now: commands with the words
/// behind them. Not `io`, which names files by what processes have open: those of others are not
/// to be seen out of a landlock.
const ANSWERS: [(&str, &[&str]); 8] = [
    ("boot", &["report"]),
    ("kmem", &["stat", "pagealloc"]),
    ("kwork", &["latency", "report", "timehist", "top"]),
    ("lock", &["contention", "info", "report"]),
    ("offcpu", &["report"]),
    ("sched", &["latency", "map", "timehist"]),
    ("syscalls", &["report"]),
    ("why", &[]),
];

/// Options of answers by which something is recorded first ([`crate::commands`]' `LiveArgs`).
const TAKEN_NOW: [&str; 5] = ["live", "all_cpus", "mmap_pages", "timeout", "command"];

/// Whether a command only reads recordings.
fn is_reader(name: &str, matches: &ArgMatches) -> bool {
    let given = |matches: &ArgMatches, id: &str| {
        matches!(matches.try_contains_id(id), Ok(true))
            && matches.value_source(id) != Some(ValueSource::DefaultValue)
    };
    if let Some((_, words)) = ANSWERS.iter().find(|(answer, _)| *answer == name) {
        let answer = match matches.subcommand() {
            Some((word, within)) => words.contains(&word).then_some(within),
            None => words.is_empty().then_some(matches),
        };
        // `kmem stat --live` is about memory.
        let is_now = |id: &&str| !(name == "kmem" && *id == "live");
        let mut now = TAKEN_NOW.iter().filter(|id| is_now(id));
        return answer.is_some_and(|answer| !now.any(|id| given(answer, id)));
    }
    match name {
        "view" => true,
        // Servers that no other command asks, and files as a process sees them.
        "buildid-cache" => !["debuginfod", "target_ns"].iter().any(|id| given(matches, id)),
        "profile" | "trace" | "list" => given(matches, "input"),
        "diff" => !["run", "of"].iter().any(|id| given(matches, id)),
        _ => READERS.contains(&name),
    }
}

/// Gives up what a command does not need. To be called before any thread begins.
pub(crate) fn enter(name: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    if !is_reader(name, matches) || matches.get_flag(NO_SANDBOX) {
        return Ok(());
    }
    // The words behind a command have the options.
    let matches = matches.subcommand().map_or(matches, |(_, within)| within);
    let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten();
    let output = path("output");
    let mut sandbox = Sandbox::default();
    if !WITHOUT_SYMBOLS.contains(&name) {
        sandbox.keep_roots();
    }
    let unnamed = unnamed_outputs(name, matches);
    let files = output.into_iter().chain(path("save")).chain(path(crate::LEDGER_FILE));
    let files = files.chain(&unnamed);
    for file in files.filter(|file| file.as_os_str() != "-") {
        // Where a link leads to another directory, the file is in that one, if it is there or not.
        if let Ok(target) = OutputPlace::find(file) {
            sandbox.allow_writes(existing_parent(&target.path));
        }
        sandbox.allow_writes(existing_parent(file));
        sandbox.allow_files_of_others();
    }
    let is_prompt =
        name == "sql" && sql::Args::from_arg_matches(matches).is_ok_and(|args| args.has_prompt());
    // Its statements are kept there.
    if let Some(directory) = is_prompt.then(sql::prompt::history_directory).flatten() {
        // As below.
        let _ = std::fs::create_dir_all(&directory);
        sandbox.allow_writes(directory);
    }
    if let Some(cache) = SymbolCache::of_user() {
        // A directory that is not there cannot be allowed.
        let _ = cache.make_directory();
        sandbox.allow_writes(cache.directory());
    }
    let asks = !matches!(matches.try_get_one::<bool>("no_debuginfod"), Ok(Some(true)));
    if let Some(client) = ClientConfig::from_env().filter(|_| asks) {
        let _ = std::fs::create_dir_all(&client.cache);
        sandbox.allow_writes(client.cache);
        sandbox.allow_network();
    }
    let views = matches!(matches.try_get_one::<bool>("view"), Ok(Some(true)));
    if (name == "view" && output.is_none()) || views {
        let port = matches.try_get_one::<u16>("port").ok().flatten();
        crate::commands::view::door::prepare(port.copied().unwrap_or(0))?;
    }
    // Results of a prompt are not paged.
    if output.is_none() && unnamed.is_empty() && name != "view" && !is_prompt {
        crate::screen::prepare();
    }
    sandbox.enter().context("cannot give up rights (--no-sandbox keeps them)")
}

/// Files that a command makes without given names, or one in each directory in which it makes some.
fn unnamed_outputs(name: &str, matches: &ArgMatches) -> Vec<PathBuf> {
    let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten().cloned();
    let recording = || path("input").or_else(|| path("file"));
    match name {
        // Beside the recording.
        "bundle" if path("output").is_none() => vec![recording().unwrap_or_default()],
        "archive" if matches.get_flag("unpack") => {
            let cache = BuildIdDirectory::of_user().map(|cache| cache.path().join("any"));
            cache.into_iter().chain([PathBuf::new()]).collect()
        }
        "archive" => vec![recording().unwrap_or_default(), PathBuf::new()],
        // Functions of just-in-time compilers, which are beside what `-o` names otherwise.
        "inject"
            if matches.get_flag("jit") && path("output").is_none_or(|o| o.as_os_str() == "-") =>
        {
            vec![PathBuf::new()]
        }
        "data" => ["to_json", "to_ctf"].into_iter().filter_map(path).collect(),
        "buildid-cache" if !matches.get_flag("list") => {
            let cache = BuildIdDirectory::of_user().map(|cache| cache.path().join("any"));
            cache.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The directory above a path, or above that, which is there.
fn existing_parent(path: &Path) -> PathBuf {
    let parents = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
    let found = parents.into_iter().find(|p| p.is_dir());
    found.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
