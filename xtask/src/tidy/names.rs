//! Names and words that the project does not use (design of the names: the field's words,
//! plain technical English), and public type names that are said twice. What is left of
//! them has a limit in `names.txt`, which may only go down: `cargo xtask tidy --lower`.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;

use super::{Checkout, TextFile, code, is_fixture};

const LIST: &str = "xtask/src/tidy/names.txt";

/// Files of this rule, which have to name what they refuse.
const OWN: &[&str] = &[LIST, "xtask/src/tidy/names.rs"];

/// Scope in which a name is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Definitions of types of that name.
    Type,
    /// Definitions of a public type name that is said more than once and imported bare.
    Twice,
    /// Identifiers that have the word as a part.
    Identifier,
    /// Source files called so.
    File,
    /// Comments, texts of the program and pages.
    Prose,
    /// README, changelog and the book, without its pages for developers.
    Page,
    /// First words of a documentation comment.
    Opening,
}

/// A line of the list.
struct BannedName<'t> {
    scope: Scope,
    name: &'t str,
    limit: usize,
    /// Replacement.
    instead: &'t str,
}

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let mut found = Vec::new();
    let list = checkout.texts.iter().find(|file| file.name == LIST);
    let text = list.map(|file| file.text.as_str()).unwrap_or_default();
    let uses = Uses::collect(checkout);
    let mut known = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| is_entry(line)) {
        let Some(banned) = parse(line) else {
            found.push(format!("{LIST}:{}: not `scope | name | limit | instead`", i + 1));
            continue;
        };
        let places = uses.list(&banned);
        if places.len() > banned.limit {
            let (name, limit, instead) = (banned.name, banned.limit, banned.instead);
            let mut list = places.clone();
            list.dedup();
            found.push(format!(
                "`{name}` is said {} times where {limit} were left; say {instead}: {}",
                places.len(),
                list.iter().take(12).cloned().collect::<Vec<_>>().join(" ")
            ));
        }
        if banned.scope == Scope::Twice {
            known.push(banned.name);
        }
    }
    for (name, places) in &uses.twice {
        if !known.contains(name) {
            found.push(format!(
                "public type `{name}` is defined in {} and imported by its bare name: \
                 give it two words, or always qualify it",
                places.join(" and ")
            ));
        }
    }
    found
}

/// Rewrites the list with what is left of each name.
pub(super) fn lower(checkout: &Checkout) -> anyhow::Result<()> {
    let list = checkout.texts.iter().find(|file| file.name == LIST).context(LIST)?;
    let uses = Uses::collect(checkout);
    let mut out = String::new();
    for line in list.text.lines() {
        match parse(line).filter(|_| is_entry(line)) {
            Some(banned) => {
                let left = uses.list(&banned).len().min(banned.limit);
                if left > 0 || banned.scope != Scope::Twice {
                    let (scope, rest) = line.split_once('|').context("a line")?;
                    let mut parts = rest.splitn(3, '|');
                    let (name, _, instead) = (parts.next(), parts.next(), parts.next());
                    let (name, instead) = (name.unwrap_or_default(), instead.unwrap_or_default());
                    out.push_str(&format!("{scope}|{name}| {left} |{instead}\n"));
                }
            }
            None => out.push_str(&format!("{line}\n")),
        }
    }
    std::fs::write(checkout.root.join(LIST), out).context(LIST)
}

fn is_entry(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

fn parse(line: &str) -> Option<BannedName<'_>> {
    let mut parts = line.splitn(4, '|').map(str::trim);
    let scope = match parts.next()? {
        "type" => Scope::Type,
        "twice" => Scope::Twice,
        "identifier" => Scope::Identifier,
        "file" => Scope::File,
        "prose" => Scope::Prose,
        "page" => Scope::Page,
        "opening" => Scope::Opening,
        _ => return None,
    };
    let (name, limit) = (parts.next()?, parts.next()?.parse().ok()?);
    Some(BannedName { scope, name, limit, instead: parts.next()? })
}

/// Uses of names.
struct Uses<'c> {
    /// Type name → files that define it.
    types: HashMap<&'c str, Vec<&'c str>>,
    /// Public type name → files that define it, if it is ambiguous.
    twice: BTreeMap<&'c str, Vec<&'c str>>,
    /// Part of an identifier → files.
    identifiers: HashMap<String, Vec<&'c str>>,
    /// Stem → files.
    files: HashMap<&'c str, Vec<&'c str>>,
    /// File and its prose, in lower case, words parted by one blank, with one around.
    prose: Vec<(&'c str, String)>,
    /// File and the first line of a documentation comment.
    openings: Vec<(&'c str, &'c str)>,
}

impl<'c> Uses<'c> {
    fn collect(checkout: &'c Checkout) -> Uses<'c> {
        let mut uses = Uses {
            types: HashMap::new(),
            twice: BTreeMap::new(),
            identifiers: HashMap::new(),
            files: HashMap::new(),
            prose: Vec::new(),
            openings: Vec::new(),
        };
        let ours = checkout.texts.iter().filter(|f| !is_fixture(&f.name));
        let ours: Vec<&TextFile> = ours.filter(|f| !OWN.contains(&f.name.as_str())).collect();
        let mut public: HashMap<&str, Vec<&str>> = HashMap::new();
        for file in &ours {
            let name = file.name.as_str();
            if !name.ends_with(".rs") {
                if name.ends_with(".md") {
                    uses.prose.push((name, normalize(&file.text)));
                }
                continue;
            }
            uses.prose.push((name, normalize(&file.split.prose)));
            uses.openings.extend(openings(&file.text).map(|opening| (name, opening)));
            let stem = name.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
            uses.files.entry(stem).or_default().push(name);
            for (is_public, defined) in type_definitions(&file.split.code) {
                uses.types.entry(defined).or_default().push(name);
                if is_public && name.contains("/src/") {
                    public.entry(defined).or_default().push(name);
                }
            }
            for word in code::words(&file.split.code) {
                for part in parts_of_identifier(word) {
                    uses.identifiers.entry(part).or_default().push(name);
                }
            }
        }
        public.retain(|_, places| places.len() > 1);
        for (name, places) in public {
            let bare = |f: &&&TextFile| imports_bare(&f.split.code, name);
            if ours.iter().filter(|f| f.name.ends_with(".rs")).any(|f| bare(&f)) {
                uses.twice.insert(name, places);
            }
        }
        uses
    }

    fn list_openings(&self, name: &str) -> Vec<&'c str> {
        let starts = |opening: &str| {
            opening.strip_prefix(name).is_some_and(|rest| !rest.starts_with(code::is_word))
        };
        self.openings.iter().filter(|(_, text)| starts(text)).map(|(file, _)| *file).collect()
    }

    fn list_prose(&self, name: &str, is_counted: fn(&str) -> bool) -> Vec<&'c str> {
        let wanted = format!(" {} ", name.to_lowercase());
        let mut found = Vec::new();
        for (file, text) in self.prose.iter().filter(|(file, _)| is_counted(file)) {
            // Two in a row share the blank between them.
            let count = text
                .match_indices(wanted.trim_end())
                .filter(|(at, _)| text[at + wanted.len() - 1..].starts_with(' '));
            found.extend(count.map(|_| *file));
        }
        found
    }

    fn list(&self, banned: &BannedName<'_>) -> Vec<&'c str> {
        match banned.scope {
            Scope::Type => self.types.get(banned.name).cloned().unwrap_or_default(),
            Scope::Twice => self.twice.get(banned.name).cloned().unwrap_or_default(),
            Scope::Identifier => self.identifiers.get(banned.name).cloned().unwrap_or_default(),
            Scope::File => self.files.get(banned.name).cloned().unwrap_or_default(),
            Scope::Prose => self.list_prose(banned.name, |_| true),
            Scope::Page => self.list_prose(banned.name, is_page),
            Scope::Opening => self.list_openings(banned.name),
        }
    }
}

/// Whether a document is a page for readers: of the book, or in the root directory.
fn is_page(name: &str) -> bool {
    name.starts_with("docs/") || name.ends_with(".md") && !name.contains('/')
}

/// First lines of documentation comments.
fn openings(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let is_first = comment.is_some() && !is_inside;
        is_inside = comment.is_some();
        comment.filter(|_| is_first).map(str::trim_start)
    })
}

/// Words in lower case with a blank between, so that a phrase may go over lines.
fn normalize(prose: &str) -> String {
    let mut out = String::from(" ");
    for word in prose.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()) {
        out.push_str(&word.to_lowercase());
        out.push(' ');
    }
    out
}

/// Types that code defines, and whether they are public.
fn type_definitions(code: &str) -> Vec<(bool, &str)> {
    let mut found = Vec::new();
    for line in code.lines() {
        let text = line.trim_start();
        let is_public = text.starts_with("pub ");
        let mut words = text.split_whitespace().skip_while(|w| w.starts_with("pub"));
        let keyword = words.next();
        // An associated type is indented and belongs to its trait.
        let is_item = matches!(keyword, Some("struct" | "enum" | "trait" | "union"))
            || keyword == Some("type") && text.len() == line.len();
        if let (true, Some(rest)) = (is_item, words.next()) {
            let name = rest.split(|c| !code::is_word(c)).next().unwrap_or_default();
            found.push((is_public, name));
        }
    }
    found
}

/// Whether a `use` takes a name so that it stands alone.
fn imports_bare(code: &str, name: &str) -> bool {
    let mut from = 0;
    while let Some(at) = code[from..].find("use ").map(|n| n + from) {
        let end = code[at..].find(';').map_or(code.len(), |n| n + at);
        let first_in_line = code[..at].rsplit('\n').next().is_some_and(|before| {
            let before = before.trim();
            before.is_empty() || before.starts_with("pub")
        });
        // What is exported is not yet used.
        let is_private = code[..at].rsplit('\n').next().is_some_and(|b| b.trim().is_empty());
        let words: Vec<&str> = code::words(&code[at..end]).collect();
        let taken = words
            .iter()
            .enumerate()
            .any(|(i, word)| *word == name && words.get(i + 1) != Some(&"as"));
        if first_in_line && is_private && taken {
            return true;
        }
        from = end.max(at + 4).min(code.len());
    }
    false
}

/// `FxHash_map` → fx, hash, map.
fn parts_of_identifier(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut lower_before = false;
    for c in word.chars() {
        if c == '_' || c.is_uppercase() && lower_before {
            parts.push(String::new());
        }
        lower_before = c.is_lowercase();
        if let Some(last) = parts.last_mut().filter(|_| c != '_') {
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{LIST, findings, normalize, parts_of_identifier};
    use crate::tidy::{Checkout, TextFile};

    #[test]
    fn names_past_their_limit_are_found() {
        let check = |list: &str, text: &str, expected: usize| {
            let texts = vec![
                TextFile::new(LIST, list.to_owned()),
                TextFile::new("crates/x/src/shelf.rs", text.to_owned()),
                TextFile::new("crates/y/src/a.rs", "pub struct Twin;\n".to_owned()),
                TextFile::new("crates/z/src/a.rs", "pub struct Twin;\n".to_owned()),
            ];
            let checkout = Checkout { root: PathBuf::new(), names: Vec::new(), texts };
            let found = findings(&checkout);
            assert_eq!(found.len(), expected, "{list} {text}: {found:?}");
        };
        check("type | Place | 0 | FileOffset", "struct Place;", 1);
        check("type | Place | 1 | FileOffset", "struct Place;", 0);
        check("type | Place | 0 | FileOffset", "struct Placement; // Place", 0);
        check("identifier | bell | 1 | waiter", "fn ring_bell() {}\nstruct BellRope;", 1);
        check("identifier | bell | 0 | waiter", "fn bellow() {} // bell", 0);
        check("prose | for ever | 0 | forever", "// It stays for\n// ever.", 1);
        check("prose | folder | 0 | directory", "// Subfolders.\nfn folder() {}", 0);
        check("prose | folder | 0 | directory", "const A: &str = \"no folder\";", 1);
        check("file | shelf | 0 | cache", "", 1);
        check("opening | What | 0 | a noun", "/// What it is.\nstruct A;", 1);
        check("opening | What | 0 | a noun", "/// Whatever.\n/// What it is.\nstruct A;", 0);
        check("page | nobody | 0 | no process", "// Nobody.", 0);
        check("", "use y::Twin;\n", 1);
        check("twice | Twin | 2 | two words", "use y::Twin;\n", 0);
        check("", "fn f(t: y::Twin) {}\n", 0);
        check("nonsense", "", 1);
    }

    #[test]
    fn words_are_split() {
        assert_eq!(parts_of_identifier("ringBell_for_RSEQ"), ["ring", "bell", "for", "rseq"]);
        assert_eq!(normalize("/// For\n/// ever, it's"), " for ever it's ");
    }
}
