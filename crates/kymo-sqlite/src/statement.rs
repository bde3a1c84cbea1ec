//! Text of statements: what is refused before SQLite sees it.

/// Words that begin statements of Perfetto's dialect, with what is not supported.
const PERFETTO: [(&[&str], &str); 5] = [
    (&["include", "perfetto"], "INCLUDE PERFETTO MODULE (modules of Perfetto's standard library)"),
    (&["create", "perfetto"], "CREATE PERFETTO TABLE, VIEW, FUNCTION, MACRO and INDEX"),
    (&["create", "or", "replace", "perfetto"], "CREATE OR REPLACE PERFETTO"),
    (&["drop", "perfetto"], "DROP PERFETTO"),
    (&["create", "virtual", "table"], "CREATE VIRTUAL TABLE (SPAN_JOIN and the like)"),
];

/// Whether a text ends with the `;` of a statement, not one in quotes or a comment.
pub fn is_complete(sql: &str) -> bool {
    Tokens { rest: sql }.last().is_some_and(|token| matches!(token, Token::Sign(';')))
}

/// Finds what makes a query refused, by name: words of Perfetto's dialect, and integers that SQL
/// has no room for, which SQLite would round in silence.
pub(crate) fn refusal(sql: &str) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    let mut sign = None;
    let tokens = Tokens { rest: sql };
    for token in tokens {
        match token {
            Token::Number(text) => {
                let is_decimal = text.bytes().all(|b| b.is_ascii_digit());
                if is_decimal && text.parse::<i64>().is_err() {
                    // The smallest integer has no positive counterpart.
                    let number = format!("{}{text}", if sign == Some('-') { "-" } else { "" });
                    if number.parse::<i64>().is_err() {
                        return Some(format!(
                            "{text} is above {}, the largest integer of SQL, and would be rounded; \
                             columns have such values as the same bits, which hexadecimal digits \
                             write: 0x{}",
                            i64::MAX,
                            text.parse::<u64>().map_or("...".to_owned(), |n| format!("{n:x}")),
                        ));
                    }
                }
                sign = None;
            }
            Token::Sign(';') => {
                words.clear();
                sign = Some(';');
            }
            Token::Sign(c) => sign = Some(c),
            Token::Word(word) => {
                sign = None;
                if words.len() < 4 {
                    words.push(word.to_ascii_lowercase());
                    let found = PERFETTO.iter().find(|(start, _)| *start == words);
                    if let Some((_, what)) = found {
                        return Some(format!(
                            "{what}: not supported; plain SQL on the tables is, WITH among it"
                        ));
                    }
                }
            }
            Token::Quoted => sign = None,
        }
    }
    None
}

enum Token<'a> {
    Word(&'a str),
    Number(&'a str),
    Quoted,
    Sign(char),
}

/// Tokens of SQL, without comments.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (token, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        token
    }

    fn skip_through(&mut self, end: &str) {
        let to = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len());
        self.take(to);
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.rest = self.rest.trim_start();
            let first = self.rest.chars().next()?;
            if self.rest.starts_with("--") {
                self.skip_through("\n");
            } else if self.rest.starts_with("/*") {
                self.take(2);
                self.skip_through("*/");
            } else if let '\'' | '"' | '`' | '[' = first {
                self.take(1);
                self.skip_through(match first {
                    '[' => "]",
                    '"' => "\"",
                    '`' => "`",
                    _ => "'",
                });
                return Some(Token::Quoted);
            } else if first.is_ascii_digit()
                || (first == '.' && self.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit))
            {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
                let to = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                return Some(Token::Number(self.take(to)));
            } else if first.is_alphabetic() || first == '_' {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let to = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                return Some(Token::Word(self.take(to)));
            } else {
                self.take(first.len_utf8());
                return Some(Token::Sign(first));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_sql_has_no_room_for_are_refused() {
        for sql in [
            "SELECT 18446744073709551615",
            "SELECT * FROM args WHERE int_value=9223372036854775808",
            "SELECT 1 -- ok\n + 99999999999999999999999",
            "SELECT 'it''s', 9223372036854775808",
        ] {
            assert!(refusal(sql).is_some_and(|r| r.contains("the largest integer")), "{sql}");
        }
        for sql in [
            "SELECT 9223372036854775807, -9223372036854775808, 1e30, 99999999999999999999.5",
            "SELECT '18446744073709551615', \"18446744073709551615\", [18446744073709551615]",
            "SELECT 1 -- 18446744073709551615",
            "SELECT /* 18446744073709551615 */ 0xffffffffffffffff, a18446744073709551615",
            "SELECT 'unfinished",
            "",
        ] {
            assert_eq!(refusal(sql), None, "{sql}");
        }
    }

    #[test]
    fn a_statement_ends_with_its_semicolon() {
        for sql in ["SELECT 1;", "SELECT ';';", "SELECT 1 /* ; */ ; -- ;", ";"] {
            assert!(is_complete(sql), "{sql}");
        }
        for sql in
            ["", "SELECT 1", "SELECT ';", "SELECT 1 -- ;", "SELECT 1 /* ;", "SELECT 1; SELECT"]
        {
            assert!(!is_complete(sql), "{sql}");
        }
    }

    #[test]
    fn words_of_perfetto_are_named() {
        for (sql, word) in [
            ("INCLUDE PERFETTO MODULE linux.cpu;", "INCLUDE PERFETTO MODULE"),
            ("select 1; -- x\n create perfetto table x as select 1", "CREATE PERFETTO"),
            (
                "Create Or Replace Perfetto Function f() returns int as select 1",
                "CREATE OR REPLACE",
            ),
            ("CREATE VIRTUAL TABLE x USING SPAN_JOIN(a, b)", "SPAN_JOIN"),
        ] {
            assert!(refusal(sql).is_some_and(|r| r.contains(word)), "{sql}");
        }
        assert_eq!(refusal("SELECT 'create perfetto table', include FROM perfetto"), None);
    }
}
