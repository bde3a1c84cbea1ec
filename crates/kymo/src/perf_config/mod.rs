//! perf's configuration files: which there are, and what they say together. Their syntax is
//! `kymo_files::perf_config`'s; which options the variables stand for is in `settings.rs`.

pub(crate) mod settings;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kymo_files::perf_config::{ConfigVariables, normal_key};
use kymo_kernel::{regular_file, system};

/// The file of all users.
const SYSTEM: &str = "/etc/perfconfig";
/// More than anybody has written.
const LARGEST: u64 = 1 << 20;

/// Selection of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigScope {
    /// The system's and the user's, or the one that `PERF_CONFIG` names.
    All,
    User,
    System,
}

/// A variable that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveVariable {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The file that it is from.
    pub(crate) file: PathBuf,
}

/// Merged variables of the configuration files.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerfConfig {
    /// In perf's order: a section's together, those of the system's file first.
    variables: Vec<EffectiveVariable>,
    /// Errors in the files, each with the file's name.
    pub(crate) problems: Vec<String>,
}

impl ConfigScope {
    /// The files, the later ones count more.
    fn files(self) -> Vec<PathBuf> {
        let user = || user_file().into_iter();
        match self {
            ConfigScope::System => vec![SYSTEM.into()],
            ConfigScope::User => user().collect(),
            ConfigScope::All => match named_file() {
                Some(named) => vec![named],
                None => {
                    let system = (!is_set("PERF_CONFIG_NOSYSTEM")).then(|| SYSTEM.into());
                    let users = user().filter(|_| !is_set("PERF_CONFIG_NOGLOBAL"));
                    system.into_iter().chain(users).collect()
                }
            },
        }
    }

    /// The file that variables are written to. `None` where there is none.
    pub(crate) fn written_file(self) -> Option<PathBuf> {
        match self {
            ConfigScope::All => named_file().or_else(user_file),
            ConfigScope::User => user_file(),
            ConfigScope::System => Some(SYSTEM.into()),
        }
        .filter(|file| file != Path::new("/dev/null"))
    }
}

impl PerfConfig {
    /// Reads the files.
    pub(crate) fn read(scope: ConfigScope) -> PerfConfig {
        let mut config = PerfConfig::default();
        for file in scope.files() {
            config.add(&file);
        }
        config
    }

    /// The value of a variable.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.find(key).map(|variable| variable.value.as_str())
    }

    /// A variable.
    pub(crate) fn find(&self, key: &str) -> Option<&EffectiveVariable> {
        self.variables.iter().find(|variable| variable.key == key)
    }

    /// All variables that count, in perf's order.
    pub(crate) fn variables(&self) -> &[EffectiveVariable] {
        &self.variables
    }

    fn add(&mut self, file: &Path) {
        if file == Path::new("/dev/null") {
            return;
        }
        match read(file) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let ConfigVariables { variables, mistake } = ConfigVariables::parse(&text);
                for found in variables {
                    let (key, value) = (found.key, found.value);
                    self.set(EffectiveVariable { key, value, file: file.to_owned() });
                }
                let problem = mistake.map(|mistake| format!("{}: {mistake}", file.display()));
                self.problems.extend(problem);
            }
            Err(problem) => self.problems.push(format!("{}: {problem}", file.display())),
        }
    }

    fn set(&mut self, new: EffectiveVariable) {
        if let Some(old) = self.variables.iter_mut().find(|old| old.key == new.key) {
            *old = new;
            return;
        }
        let section = |key: &str| key.split('.').next().map(str::to_owned);
        let of = section(&new.key);
        let last = self.variables.iter().rposition(|old| section(&old.key) == of);
        self.variables.insert(last.map_or(self.variables.len(), |last| last + 1), new);
    }
}

/// A key as the files have it.
pub(crate) fn key_of(typed: &str) -> String {
    normal_key(typed)
}

/// The bytes of a file; `None` if there is none.
fn read(file: &Path) -> Result<Option<Vec<u8>>, String> {
    let is_named = named_file().is_some_and(|named| named == file);
    let (open, meta) = match regular_file::open_with_metadata(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // The home directory may be that of a caller with more rights.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !is_named => {
            return Ok(None);
        }
        opened => opened.map_err(|e| e.to_string())?,
    };
    // Its options are those of its author.
    if meta.uid() != 0 && meta.uid() != system::effective_user() {
        return Err("it belongs neither to you nor to root; it is not read".to_owned());
    }
    regular_file::read_open(open, &meta, LARGEST).map(Some).map_err(|e| e.to_string())
}

/// The one file that `PERF_CONFIG` names.
fn named_file() -> Option<PathBuf> {
    std::env::var_os("PERF_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn user_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".perfconfig"))
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| is_true(&value) == Some(true))
}

/// A truth value, in the words that perf takes.
fn is_true(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" | "" => Some(false),
        number => number.parse::<i64>().ok().map(|number| number != 0),
    }
}
