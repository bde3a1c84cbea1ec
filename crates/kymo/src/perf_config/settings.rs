//! Variables of perf's configuration and the options that they stand for: they are put before
//! what was typed, and only where no option that says the same was typed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{PerfConfig, is_true};

/// Variable with the directory of perf's build-id cache.
pub(crate) const BUILD_ID_DIRECTORY: &str = "buildid.dir";

/// Variables and an option of some commands.
pub(crate) struct Setting {
    /// The variables; the first one that is set counts.
    pub(crate) keys: &'static [&'static str],
    /// Commands, those within others as `kmem stat`.
    pub(crate) commands: &'static [&'static str],
    option: OptionForm,
    /// Options (their ids) that say the same: with one of them the variables do not count.
    pub(crate) typed_instead: &'static [&'static str],
    /// Option without which the variables do not count.
    pub(crate) only_with: Option<&'static str>,
}

/// Translation of a value into options.
enum OptionForm {
    /// `--option=VALUE`
    Value(&'static str),
    /// An option for a truth value that is not the default.
    Truth(bool, &'static str),
    /// An option for one of some values; others mean nothing.
    Words(&'static [(&'static str, &'static str)]),
    /// Recording mode of call chains.
    RecordMode,
    /// Drawing of call chains.
    ChainDrawing,
}

use OptionForm::{ChainDrawing, RecordMode, Truth, Value, Words};

const fn setting(
    keys: &'static [&'static str],
    commands: &'static [&'static str],
    option: OptionForm,
    typed_instead: &'static [&'static str],
) -> Setting {
    Setting { keys, commands, option, typed_instead, only_with: None }
}

pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        only_with: Some("graph"),
        ..setting(
            &["record.call-graph", "call-graph.record-mode", "call-graph.dump-size"],
            &["record"],
            RecordMode,
            &["call_graph"],
        )
    },
    Setting {
        only_with: Some("graph"),
        ..setting(
            &["top.call-graph", "call-graph.record-mode", "call-graph.dump-size"],
            &["top"],
            RecordMode,
            &["call_graph"],
        )
    },
    setting(&["record.build-id"], &["record"], Words(&[("skip", "--no-buildid")]), &["no_buildid"]),
    setting(
        &["core.proc-map-timeout"],
        &["record", "top"],
        Value("--proc-map-timeout"),
        &["proc_map_timeout"],
    ),
    setting(
        &["report.children"],
        &["report"],
        Truth(false, "--no-children"),
        &["children", "no_children"],
    ),
    setting(&["report.percent-limit"], &["report"], Value("--percent-limit"), &["percent_limit"]),
    setting(&["report.sort_order"], &["report"], Value("--configured-sort"), &["sort", "fields"]),
    setting(&["hist.percentage"], &["report"], Value("--percentage"), &["percentage"]),
    setting(
        &["call-graph.print-type", "call-graph.order", "call-graph.threshold"],
        &["report"],
        ChainDrawing,
        &["call_graph"],
    ),
    setting(
        &["top.children"],
        &["top"],
        Truth(false, "--no-children"),
        &["children", "no_children"],
    ),
    setting(
        &["annotate.disassembler_style"],
        &["annotate"],
        Value("--disassembler-style"),
        &["disassembler_style"],
    ),
    setting(&["annotate.hide_src_code"], &["annotate"], Truth(true, "--no-source"), &[]),
    setting(&["annotate.show_linenr"], &["annotate"], Truth(true, "--print-line"), &[]),
    setting(
        &["annotate.show_nr_samples"],
        &["annotate"],
        Truth(true, "--show-nr-samples"),
        &["show_nr_samples", "show_total_period"],
    ),
    setting(
        &["annotate.show_total_period"],
        &["annotate"],
        Truth(true, "--show-total-period"),
        &["show_nr_samples", "show_total_period"],
    ),
    setting(&["annotate.demangle"], &["annotate"], Truth(false, "--no-demangle"), &["no_demangle"]),
    setting(&["stat.big-num"], &["stat"], Truth(false, "--no-big-num"), &["big_num", "no_big_num"]),
    setting(
        &["kmem.default"],
        &["kmem stat"],
        Words(&[("slab", "--slab"), ("page", "--page")]),
        &["slab", "page"],
    ),
    setting(&["trace.no_inherit"], &["trace"], Truth(true, "--no-inherit"), &["no_inherit"]),
    setting(
        &["buildid-cache.debuginfod"],
        &["buildid-cache"],
        Value("--debuginfod"),
        &["debuginfod"],
    ),
];

/// An option that a variable stands for.
pub(crate) struct ConfiguredOption {
    /// The variable.
    pub(crate) key: &'static str,
    /// The option as it could be typed.
    pub(crate) option: OsString,
}

/// Options of a command that the configuration has and that were not typed in another way.
/// What a value cannot mean is said.
pub(crate) fn options_of(
    config: &PerfConfig,
    command: &str,
    typed: &ArgMatches,
) -> (Vec<ConfiguredOption>, Vec<String>) {
    let (mut options, mut problems) = (Vec::new(), Vec::new());
    let is_typed = |id: &str| typed.value_source(id) == Some(ValueSource::CommandLine);
    for setting in SETTINGS.iter().filter(|setting| setting.commands.contains(&command)) {
        let counts = setting.only_with.is_none_or(is_typed)
            && !setting.typed_instead.iter().any(|id| is_typed(id));
        let key = setting.keys.iter().find(|key| config.get(key).is_some());
        let Some(key) = key.filter(|_| counts) else { continue };
        match setting.option(config, key) {
            Ok(Some(option)) => options.push(ConfiguredOption { key, option: option.into() }),
            Ok(None) => {}
            Err(why) => problems.push(problem(config, key, &why)),
        }
    }
    (options, problems)
}

/// Message about an invalid variable.
pub(crate) fn problem(config: &PerfConfig, key: &str, why: &str) -> String {
    let Some(variable) = config.find(key) else { return why.to_owned() };
    format!("{}: {key} = {}: {why}", variable.file.display(), variable.value)
}

impl Setting {
    fn option(&self, config: &PerfConfig, key: &str) -> Result<Option<String>, String> {
        let value = config.get(key).unwrap_or_default();
        match self.option {
            Value(option) => Ok(Some(format!("{option}={value}"))),
            Truth(which, option) => match is_true(value) {
                Some(truth) => Ok((truth == which).then(|| option.to_owned())),
                None => Err("neither true nor false".to_owned()),
            },
            Words(words) => {
                let found = words.iter().find(|(word, _)| *word == value);
                Ok(found.map(|(_, option)| (*option).to_owned()))
            }
            RecordMode => Ok(record_mode(config, self.keys.first().copied().unwrap_or_default())),
            ChainDrawing => Ok(chain_drawing(config)),
        }
    }
}

fn record_mode(config: &PerfConfig, own: &str) -> Option<String> {
    let mode = config.get(own).or_else(|| config.get("call-graph.record-mode"))?;
    let size = config.get("call-graph.dump-size").filter(|_| mode == "dwarf");
    Some(match size {
        Some(size) => format!("--call-graph={mode},{size}"),
        None => format!("--call-graph={mode}"),
    })
}

fn chain_drawing(config: &PerfConfig) -> Option<String> {
    let words = ["call-graph.print-type", "call-graph.order", "call-graph.threshold"];
    let words: Vec<&str> = words.iter().filter_map(|key| config.get(key)).collect();
    (!words.is_empty()).then(|| format!("--configured-call-graph={}", words.join(",")))
}

/// The directory of the build-id cache, if one is configured.
pub(crate) fn build_id_directory(config: &PerfConfig) -> Option<PathBuf> {
    let value = config.get(BUILD_ID_DIRECTORY).filter(|value| !value.is_empty())?;
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    Some(match (value.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(value),
    })
}

/// Whether some command of kymo reads a variable.
pub(crate) fn is_read(key: &str) -> bool {
    key == BUILD_ID_DIRECTORY || SETTINGS.iter().any(|setting| setting.keys.contains(&key))
}
