//! Types of preprocessed headers of C: those declarations that the parser understands. Others are
//! passed over.

use super::{ProgramParser, ProgramTree};
use crate::lexer::{TokenKind, error_at, split_header_tokens};
use crate::object::ProgramPosition;

/// Adds the types of a header. `position` is where it is included.
pub(super) fn read_header(
    tree: &mut ProgramTree,
    name: &str,
    text: &str,
    position: ProgramPosition,
) {
    let tokens = match split_header_tokens(text) {
        Ok(lexed) => lexed.tokens,
        Err(e) => {
            let (line, why) = (e.position.line, e.text);
            let what = format!("types of '{name}' are ignored: line {line}: {why}");
            return tree.warnings.push(error_at(position, what));
        }
    };
    // Names of types without one differ from header to header.
    let header = format!("{}:", tree.records.len() + 1);
    let own = std::mem::take(tree);
    let mut parser = ProgramParser {
        text,
        tokens,
        at: 0,
        depth: 0,
        parameters: &[],
        tree: own,
        header,
        pack: 0,
    };
    while *parser.kind() != TokenKind::End {
        parser.header_declaration();
    }
    *tree = parser.tree;
}

impl ProgramParser<'_> {
    fn header_declaration(&mut self) {
        if let TokenKind::Pack(most) = *self.kind() {
            self.pack = most;
            self.at += 1;
            return;
        }
        if self.accept_name("__extension__") {
            return;
        }
        let begin = self.at;
        let of = &self.tree;
        let before = (of.records.len(), of.enumerations.len(), of.typedefs.len());
        let read = if self.is_name("typedef") {
            self.typedef().map(|()| true)
        } else if ["struct", "union", "enum"].iter().any(|word| self.is_name(word)) {
            self.record_or_enumeration().map(|_| self.accept(";"))
        } else {
            Ok(false)
        };
        match read {
            Ok(true) => {}
            // A variable or function, whose type may be declared with it.
            Ok(false) => self.pass_declaration(),
            Err(_) => {
                let of = &mut self.tree;
                of.records.truncate(before.0);
                of.enumerations.truncate(before.1);
                of.typedefs.truncate(before.2);
                (self.at, self.depth) = (begin, 0);
                self.pass_declaration();
            }
        }
    }

    /// Passes over the rest of a declaration: to its semicolon, or the end of a function's body.
    fn pass_declaration(&mut self) {
        let mut open = 0u32;
        loop {
            match self.next() {
                TokenKind::Mark("{" | "(" | "[") => open += 1,
                TokenKind::Mark(")" | "]") => open = open.saturating_sub(1),
                TokenKind::Mark("}") => {
                    open = open.saturating_sub(1);
                    if open == 0 && !self.is_mark(";") && !self.is_mark(",") {
                        return;
                    }
                }
                TokenKind::Mark(";") if open == 0 => return,
                TokenKind::End => {
                    self.at -= 1;
                    return;
                }
                _ => {}
            }
        }
    }
}
