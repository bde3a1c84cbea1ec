//! Tokens to a tree: the program's top level, and what its parts share.

mod declarations;
mod expressions;
mod headers;
pub(crate) mod points;
mod statements;

use std::rc::Rc;

use crate::ast::{MacroParameter, MacroTree, MapDeclaration, ProbeTree, ProgramTree};
use crate::lexer::{IncludedHeader, LexToken, TokenKind, error_at, split_program_tokens};
use crate::object::{ProgramPosition, SourceMessage};
use crate::preprocess::Preprocessor;

/// The deepest nesting of expressions and blocks.
pub(crate) const MAX_DEPTH: u16 = 100;
/// The most attach points that a program names.
const MAX_POINTS: usize = 4096;

type Parsed<T> = Result<T, SourceMessage>;

/// A parser at a token.
pub(crate) struct ProgramParser<'t> {
    text: &'t str,
    tokens: Vec<LexToken>,
    at: usize,
    depth: u16,
    parameters: &'t [String],
    tree: ProgramTree,
    /// Marks names that are made for types without one; empty in a program.
    header: String,
    /// `#pragma pack`.
    pack: u32,
}

/// Reads a program. The types of headers that it includes, and of `includes` before them, are known
/// in it.
pub(crate) fn parse_program(
    text: &str,
    parameters: &[String],
    includes: &[String],
    mut headers: Preprocessor<'_>,
) -> Parsed<ProgramTree> {
    let position = ProgramPosition { line: 1, column: 1 };
    let mut included: Vec<IncludedHeader> = Vec::new();
    for name in includes {
        let end = headers.include(name).map(|()| headers.out.len());
        included.push(IncludedHeader { name: name.clone(), position, end });
    }
    let lexed = split_program_tokens(text, &mut headers)?;
    let mut tree = ProgramTree::default();
    let mut begin = 0;
    for header in included.iter().chain(&lexed.includes) {
        match &header.end {
            Ok(end) => {
                let text = headers.out.get(begin..*end).unwrap_or_default();
                headers::read_header(&mut tree, &header.name, text, header.position);
                begin = *end;
            }
            Err(what) => {
                tree.warnings.push(error_at(header.position, what.clone()));
                tree.missing_header = Some(what.clone());
            }
        }
    }
    let position = lexed.includes.first().map_or(position, |header| header.position);
    tree.warnings.extend(headers.problems.drain(..).map(|what| error_at(position, what)));
    tree.includes = lexed.includes.into_iter().map(|h| (h.name, h.position)).collect();
    tree.header_macros = headers.macros;
    let (tokens, header) = (lexed.tokens, String::new());
    let mut parser =
        ProgramParser { text, tokens, at: 0, depth: 0, parameters, tree, header, pack: 0 };
    while *parser.kind() != TokenKind::End {
        parser.top_level()?;
    }
    Ok(parser.tree)
}

impl ProgramParser<'_> {
    fn kind(&self) -> &TokenKind {
        self.kind_at(0)
    }

    fn kind_at(&self, ahead: usize) -> &TokenKind {
        self.tokens.get(self.at + ahead).map_or(&TokenKind::End, |t| &t.kind)
    }

    fn position(&self) -> ProgramPosition {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(ProgramPosition::default(), |t| t.position)
    }

    fn next(&mut self) -> TokenKind {
        let kind = self.kind().clone();
        self.at += 1;
        kind
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.kind(), TokenKind::Mark(m) if *m == mark)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.kind(), TokenKind::Name(n) if n == name)
    }

    fn accept(&mut self, mark: &str) -> bool {
        let is = self.is_mark(mark);
        self.at += usize::from(is);
        is
    }

    fn accept_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.accept(mark) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{mark}`")))
    }

    fn expect_name(&mut self, what: &str) -> Parsed<String> {
        match self.kind().clone() {
            TokenKind::Name(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected(what)),
        }
    }

    fn unexpected(&self, wanted: &str) -> SourceMessage {
        let found = match self.kind() {
            TokenKind::End => "the end of the program".to_owned(),
            TokenKind::Text(_) => "a string".to_owned(),
            _ => {
                let token = self.tokens.get(self.at);
                let word = token.and_then(|t| self.text.get(t.begin..t.end)).unwrap_or("");
                format!("`{word}`")
            }
        };
        error_at(self.position(), format!("expected {wanted}, found {found}"))
    }

    /// Runs a parser one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            let what = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(error_at(self.position(), what));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn top_level(&mut self) -> Parsed<()> {
        match self.kind() {
            TokenKind::Mark(";") => self.at += 1,
            TokenKind::Pack(most) => {
                self.pack = *most;
                self.at += 1;
            }
            TokenKind::Name(name) => match name.as_str() {
                "config" if matches!(self.kind_at(1), TokenKind::Mark("=")) => self.config()?,
                "macro" => self.macro_definition()?,
                "import" => self.import()?,
                "let" => self.map_declaration()?,
                "typedef" => self.typedef()?,
                "struct" | "union" | "enum" => self.type_declaration()?,
                "fn" => {
                    let what = "functions (`fn`) are not supported; use `macro`";
                    return Err(error_at(self.position(), what));
                }
                _ => self.probe()?,
            },
            _ => self.probe()?,
        }
        Ok(())
    }

    fn config(&mut self) -> Parsed<()> {
        self.at += 1;
        self.expect("=")?;
        self.expect("{")?;
        while !self.accept("}") {
            let position = self.position();
            let name = self.expect_name("a setting's name")?;
            self.expect("=")?;
            let value = match self.next() {
                TokenKind::Name(v) | TokenKind::Text(v) => v,
                TokenKind::Integer(v) => v.to_string(),
                _ => {
                    self.at -= 1;
                    return Err(self.unexpected("a value"));
                }
            };
            let key = name.to_lowercase();
            let key = key.strip_prefix("bpftrace_").unwrap_or(&key).to_owned();
            self.tree.config.push((key, value, position));
            if !self.accept(";") && !self.is_mark("}") {
                return Err(self.unexpected("`;`"));
            }
        }
        Ok(())
    }

    fn import(&mut self) -> Parsed<()> {
        let position = self.position();
        self.at += 1;
        match self.next() {
            TokenKind::Text(name) | TokenKind::Name(name) => {
                self.tree.imports.push((name, position));
                self.accept(";");
                Ok(())
            }
            _ => {
                self.at -= 1;
                Err(self.unexpected("the name of the import"))
            }
        }
    }

    fn map_declaration(&mut self) -> Parsed<()> {
        let position = self.position();
        self.at += 1;
        let TokenKind::Map(name) = self.next() else {
            self.at -= 1;
            return Err(self.unexpected("a map (`@name`)"));
        };
        self.expect("=")?;
        let kind = self.expect_name("a map type")?;
        self.expect("(")?;
        let entries = match self.next() {
            TokenKind::Integer(n) => n,
            _ => {
                self.at -= 1;
                return Err(self.unexpected("the number of entries"));
            }
        };
        self.expect(")")?;
        self.accept(";");
        self.tree.map_declarations.push(MapDeclaration { name, kind, entries, position });
        Ok(())
    }

    fn macro_definition(&mut self) -> Parsed<()> {
        self.at += 1;
        let position = self.position();
        let name = self.expect_name("a macro's name")?;
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.accept(")") {
            parameters.push(match self.next() {
                TokenKind::Variable(name) => MacroParameter::Variable(name),
                TokenKind::Map(name) => MacroParameter::Map(name),
                TokenKind::Name(name) => MacroParameter::Expression(name),
                _ => {
                    self.at -= 1;
                    return Err(self.unexpected("a parameter"));
                }
            });
            if !self.accept(",") && !self.is_mark(")") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        let body = self.block()?;
        let tree = Rc::new(MacroTree { parameters, body });
        if self.tree.macros.insert(name.clone(), tree).is_some() {
            return Err(error_at(position, format!("macro {name:?} is defined twice")));
        }
        Ok(())
    }

    fn probe(&mut self) -> Parsed<()> {
        let position = self.position();
        let mut points = Vec::new();
        loop {
            let at = self.position();
            let spec = self.point_text()?;
            let spec = points::with_parameters(&spec, self.parameters);
            let found = points::parse_point(&spec).map_err(|what| error_at(at, what))?;
            points.push((found, at));
            let named: usize = self.tree.probes.iter().map(|p| p.points.len()).sum();
            if named + points.len() > MAX_POINTS {
                let what = format!("program has more than {MAX_POINTS} probes");
                return Err(error_at(at, what));
            }
            if !self.accept(",") {
                break;
            }
            if self.is_mark("{") {
                break;
            }
        }
        let filter = if self.accept("/") {
            let filter = self.expression_before_slash()?;
            self.expect("/")?;
            Some(filter)
        } else {
            None
        };
        let body = self.block()?;
        self.tree.probes.push(ProbeTree { points, filter, body, position });
        Ok(())
    }

    /// Takes the text of an attach point: up to a space, comma or brace.
    fn point_text(&mut self) -> Parsed<String> {
        let wanted = "a probe such as `tracepoint:sched:sched_switch`";
        let Some(token) = self.tokens.get(self.at) else { return Err(self.unexpected(wanted)) };
        if matches!(token.kind, TokenKind::End | TokenKind::Mark("{" | "}" | "," | ";")) {
            return Err(self.unexpected(wanted));
        }
        let rest = self.text.get(token.begin..).unwrap_or("");
        let (mut spec, mut quoted, mut len) = (String::new(), false, 0);
        // Paths hold slashes; elsewhere a slash begins the filter.
        let in_path = ["u", "ur", "U", "uprobe", "uretprobe", "usdt", "iter", "it"];
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            let slash_ends = c == '/' && !in_path.contains(&spec.split(':').next().unwrap_or(""));
            let ends = c.is_whitespace() || matches!(c, ',' | '{' | ';') || slash_ends;
            if ends && !quoted {
                break;
            }
            len += c.len_utf8();
            match c {
                // A quote may be part of a name.
                '\\' if quoted => {
                    let next = chars.next();
                    len += next.map_or(0, char::len_utf8);
                    spec.extend(next);
                }
                '"' => quoted = !quoted,
                c => spec.push(c),
            }
        }
        let end = token.begin + len;
        while self.tokens.get(self.at).is_some_and(|t| t.begin < end && t.kind != TokenKind::End) {
            self.at += 1;
        }
        Ok(spec)
    }
}
