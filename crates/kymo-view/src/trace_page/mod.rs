//! A recording as one page of HTML that makes no request: tracks over time, flame graphs, a
//! table of events and the ledger. Rust computes, the page's script only draws.
//!
//! Names of tasks, functions and fields are text of others: they are in JSON and in packed
//! pieces, never in the page's markup, and the script sets them as text.

mod head;
mod pieces;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kymo_analysis::tracks::TraceTracks;
use sha2::{Digest as _, Sha256};

use crate::Ledger;
use crate::stacks::Stacks;
use pieces::PieceWriter;

const STYLE: &str = include_str!("page.css");
const BODY: &str = include_str!("body.html");
/// The script, by subject; its parts share one scope.
const SCRIPT: [&str; 6] = [
    include_str!("data.js"),
    include_str!("tracks.js"),
    include_str!("flame.js"),
    include_str!("events.js"),
    include_str!("panels.js"),
    include_str!("main.js"),
];

/// What a page shows.
pub struct TracePage<'a> {
    /// Tracks over time.
    pub tracks: &'a TraceTracks,
    /// Samples with their stacks, by thread and in time.
    pub stacks: &'a Stacks,
    /// What could make it wrong.
    pub ledger: &'a Ledger,
    /// Its title.
    pub title: &'a str,
    /// The recordings as a shell takes them.
    pub recordings: &'a str,
    /// Which clock the times are of.
    pub clock: &'a str,
}

impl TracePage<'_> {
    /// Writes the page.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let script = SCRIPT.concat();
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
            hash(&script),
            hash(STYLE)
        );
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>kymo view</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{BODY}"
        )?;
        let mut pieces = PieceWriter::new(out);
        let head = head::describe(self, &mut pieces)?;
        pieces.finish()?;
        out.write_all(b"<script type=\"application/json\" id=\"head\">")?;
        // Nothing in a text ends the element that it is in.
        out.write_all(head.to_string().replace('<', "\\u003c").as_bytes())?;
        write!(out, "</script>\n<script>{script}</script>\n</body>\n</html>\n")
    }
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
        for unsafe_way in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!script.contains(unsafe_way), "{unsafe_way}");
        }
    }
}
