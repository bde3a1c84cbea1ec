//! Order of rows: `--sort`.

use std::cmp::Ordering;

use crate::{Cell, Column, Role};

/// Word that `--sort` takes for a column: another program's, or a shorter one.
pub type SortAlias = (&'static str, &'static str);

/// Columns that rows are sorted by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortKeys(Vec<(usize, bool)>);

impl SortKeys {
    /// Resolves keys: aliases, and names of columns. Numbers come largest first, keys smallest
    /// first; `-KEY` reverses the order.
    ///
    /// # Errors
    /// If a key does not exist.
    pub fn resolve<K: AsRef<str>>(
        keys: &[K],
        aliases: &[SortAlias],
        columns: &[Column],
    ) -> Result<SortKeys, String> {
        let resolve = |key: &K| {
            let key = key.as_ref().trim();
            let (word, reversed) = key.strip_prefix('-').map_or((key, false), |k| (k, true));
            let alias = aliases.iter().find(|(alias, _)| *alias == word);
            let name = alias.map_or(word, |(_, name)| name);
            let (name, reversed) =
                name.strip_prefix('-').map_or((name, reversed), |n| (n, !reversed));
            let at = columns.iter().position(|column| column.name == name);
            let Some((at, column)) = at.and_then(|at| Some((at, columns.get(at)?))) else {
                return Err(SortKeys::unknown(word, aliases, columns));
            };
            Ok((at, (column.role != Role::Key) != reversed))
        };
        keys.iter().map(resolve).collect::<Result<_, _>>().map(SortKeys)
    }

    /// Error of a key that does not exist. Lists the short ones of a table that has such, and the
    /// columns of others.
    pub fn unknown<'c>(
        key: &str,
        aliases: &[SortAlias],
        columns: impl IntoIterator<Item = &'c Column>,
    ) -> String {
        let (mut keys, mut more) = (Vec::new(), "");
        if aliases.is_empty() {
            keys.extend(columns.into_iter().map(|column| &*column.name));
        } else {
            keys.extend(aliases.iter().map(|(alias, _)| *alias));
            more = ", and the columns of docs/json.md";
        }
        let mut seen = std::collections::BTreeSet::new();
        keys.retain(|key| seen.insert(*key));
        format!("unknown key {key:?}; the keys are {}{more}", keys.join(", "))
    }

    pub(crate) fn sort(&self, rows: &mut [Vec<Cell>]) {
        // Ranks instead of a stable sort of the rows themselves, which are moved once.
        let compare = |a: &Vec<Cell>, b: &Vec<Cell>| {
            let by = self.0.iter().map(|(at, descending)| {
                let (a, b) = (a.get(*at).unwrap_or(&Cell::Null), b.get(*at).unwrap_or(&Cell::Null));
                if *descending { b.order(a) } else { a.order(b) }
            });
            by.fold(Ordering::Equal, Ordering::then)
        };
        rows.sort_by(compare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnSet;

    fn columns() -> ColumnSet<'static, (&'static str, u64)> {
        ColumnSet::new().key("comm", "name", |r: &(&str, u64), ()| r.0).sum(
            "total_ns",
            "time",
            |r, ()| r.1,
        )
    }

    #[test]
    fn numbers_come_largest_first_and_equal_rows_keep_their_order() {
        let columns = columns();
        let rows = [("b", 1), ("a", 3), ("c", 3), ("a", 1)];
        let sorted = |keys: &[&str]| {
            let mut cells: Vec<_> = rows.iter().map(|r| columns.cells(r, &())).collect();
            let keys = SortKeys::resolve(keys, &[("time", "total_ns")], &columns.columns).unwrap();
            keys.sort(&mut cells);
            let order = |row: &Vec<Cell>| rows.iter().position(|r| columns.cells(r, &()) == *row);
            cells.iter().map(|row| order(row).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(sorted(&["time"]), [1, 2, 0, 3]);
        assert_eq!(sorted(&["-total_ns"]), [0, 3, 1, 2]);
        assert_eq!(sorted(&["comm", "time"]), [1, 3, 0, 2]);
    }

    #[test]
    fn unknown_keys_are_errors_that_list_the_others() {
        let columns = columns().columns;
        let error = SortKeys::resolve(&["color"], &[("time", "total_ns")], &columns).unwrap_err();
        assert!(error.starts_with("unknown key \"color\"; the keys are time, and"), "{error}");
        let error = SortKeys::resolve(&["color"], &[], &columns).unwrap_err();
        assert_eq!(error, "unknown key \"color\"; the keys are comm, total_ns");
    }
}
