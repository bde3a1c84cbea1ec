//! A recording as one page of HTML that makes no request: tracks over time, flame graphs, a
//! table of events and the ledger. Rust computes, the page's script only draws.
//!
//! Names of tasks, functions and fields are text of others: they are in JSON and in packed
//! pieces, never in the page's markup, and the script sets them as text.

mod head;
mod pieces;
mod reading;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kymo_analysis::critical_path::PathTable;
use kymo_analysis::tracks::{DeflateEffort, PyramidLevel, TraceTracks};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Ledger;
use crate::stacks::Stacks;
use pieces::{PieceTarget, PieceWriter};

pub use reading::reading_page;

const STYLE: &str = include_str!("page.css");
const BODY: &str = include_str!("body.html");
/// The script, by subject; its parts share one scope.
const SCRIPT: [&str; 7] = [
    include_str!("data.js"),
    include_str!("tracks.js"),
    include_str!("flame.js"),
    include_str!("filter.js"),
    include_str!("events.js"),
    include_str!("panels.js"),
    include_str!("main.js"),
];

/// Contents of a page.
pub struct TracePage<'a> {
    /// Tracks over time.
    pub tracks: &'a TraceTracks,
    /// Bins over each of [`TraceTracks::span_tracks`].
    pub pyramids: &'a [Vec<PyramidLevel>],
    /// Samples with their stacks, by thread and in time.
    pub stacks: &'a Stacks,
    /// Stacks of a recording to compare with, and that as a shell takes it.
    pub baseline: Option<(&'a Stacks, &'a str)>,
    /// Warnings about the contents.
    pub ledger: &'a Ledger,
    /// Its title.
    pub title: &'a str,
    /// The recordings as a shell takes them; empty if they are not kept.
    pub recordings: &'a str,
    /// Only some of their time is shown.
    pub chosen_times: bool,
    /// The critical path that it shows first, as [`path_value`] makes it.
    pub path: Value,
    /// Process of the recorded command, which comes first.
    pub command: Option<u32>,
    /// Clock of the times.
    pub clock: &'a str,
    /// Initial view, as a fragment of the page's address; a fragment in the address has precedence.
    pub fragment: &'a str,
}

/// The critical path of a table's first task as the page takes it; times count from `base`.
pub fn path_value(table: &PathTable, base: u64) -> Value {
    let Some(path) = table.paths.first() else { return Value::Null };
    let tid = |id| table.task(id).map(|t| t.tid);
    let segments = path.segments.iter().map(|s| {
        let (from, to) = (s.from.saturating_sub(base), s.to.saturating_sub(base));
        json!([from, to, tid(s.task), s.kind.text(), s.is_uncertain()])
    });
    let segments: Vec<Value> = segments.collect();
    let (from, to) = (path.from.saturating_sub(base), path.to.saturating_sub(base));
    json!({"tid": tid(path.task), "from": from, "to": to, "segments": segments})
}

/// A page whose pieces are asked for one by one, by `p/NUMBER` beside it.
#[derive(Debug)]
pub struct ServedPage {
    /// The page.
    pub html: Vec<u8>,
    /// The pieces, compressed with deflate, behind each other.
    pub file: File,
    /// Offset and length of each piece.
    pub pieces: Vec<(u64, usize)>,
}

impl TracePage<'_> {
    fn effort(&self) -> DeflateEffort {
        DeflateEffort::for_events(self.tracks.events.count)
    }

    /// Writes the page with all its pieces.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        begin(out, "")?;
        let mut pieces = PieceWriter::new(PieceTarget::Page(out), self.effort());
        let head = head::describe(self, &mut pieces)?;
        pieces.finish()?;
        end(out, &head)
    }

    /// Makes the page without its pieces, which go into an empty file.
    ///
    /// # Errors
    /// If packing or writing fails.
    pub fn to_served(&self, file: File) -> io::Result<ServedPage> {
        let mut page = ServedPage { html: Vec::new(), file, pieces: Vec::new() };
        let target = PieceTarget::File(&mut page.file, &mut page.pieces);
        let mut pieces = PieceWriter::new(target, self.effort());
        let head = head::describe(self, &mut pieces)?;
        pieces.finish()?;
        begin(&mut page.html, "; connect-src 'self'")?;
        end(&mut page.html, &head)?;
        Ok(page)
    }
}

/// The page before its data; `allowed` is what its policy allows beside its script and style.
fn begin(out: &mut dyn Write, allowed: &str) -> io::Result<()> {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'{allowed}",
        hash(&SCRIPT.concat()),
        hash(STYLE)
    );
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"iso-8859-15\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>kymo view</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{BODY}"
    )
}

fn end(out: &mut dyn Write, head: &Value) -> io::Result<()> {
    out.write_all(b"<script type=\"application/json\" id=\"head\">")?;
    // Nothing in a text ends the element that it is in, and the page is in ASCII.
    let mut text = String::new();
    for c in head.to_string().chars() {
        match c {
            ' '..='~' if c != '<' => text.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|u| _ = write!(text, "\\u{u:04x}")),
        }
    }
    out.write_all(text.as_bytes())?;
    write!(out, "</script>\n<script>{}</script>\n</body>\n</html>\n", SCRIPT.concat())
}

/// The hash by which the policy of a page knows a script or style.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_itself_is_small_and_ends_where_it_ends() {
        let script = SCRIPT.concat();
        assert!(script.len() + STYLE.len() + BODY.len() < 120 << 10);
        for text in [&*script, STYLE] {
            assert!(!text.to_ascii_lowercase().contains("</s") && !text.contains("<!--"));
            assert!(text.is_ascii() && !text.contains('\r'));
        }
        assert!(BODY.is_ascii());
        for unsafe_way in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!script.contains(unsafe_way), "{unsafe_way}");
        }
    }
}
