//! Mean and spread of repeated runs.

use kymo_model::{CountRow, CountState};

/// Mean and spread of a growing number of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    /// Takes one more value.
    pub fn add(&mut self, value: f64) {
        self.n += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.n;
        self.squares += delta * (value - self.mean);
    }

    /// Mean of the values.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        if self.n < 2.0 { 0.0 } else { (self.squares / (self.n - 1.0) / self.n).sqrt() }
    }

    /// Standard error in percent of the mean.
    pub fn percent(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}

/// Rows of several runs, made one.
#[derive(Debug, Default)]
pub(super) struct RepeatedRows {
    rows: Vec<RepeatedRow>,
}

#[derive(Debug)]
struct RepeatedRow {
    row: CountRow,
    value: Spread,
    enabled: Spread,
    running: Spread,
}

impl RepeatedRows {
    /// Takes the rows of one more run.
    pub(super) fn add(&mut self, rows: Vec<CountRow>) {
        rows.into_iter().for_each(|row| self.add_row(row));
    }

    fn add_row(&mut self, row: CountRow) {
        let is_same = |r: &&mut RepeatedRow| {
            let r = &r.row;
            (&r.key, &r.name, &r.cgroup) == (&row.key, &row.name, &row.cgroup)
        };
        match self.rows.iter_mut().find(is_same) {
            Some(known) => known.add(&row),
            None => {
                let none = Spread::default();
                let (value, enabled, running) = (none, none, none);
                let mut new = RepeatedRow { row: row.clone(), value, enabled, running };
                new.add(&row);
                self.rows.push(new);
            }
        }
    }

    /// The means.
    pub(super) fn rows(&self) -> Vec<CountRow> {
        let mean = |r: &RepeatedRow| CountRow {
            value: r.value.mean(),
            enabled: r.enabled.mean(),
            running: r.running.mean(),
            noise: Some(r.value.percent()),
            ..r.row.clone()
        };
        self.rows.iter().map(mean).collect()
    }
}

impl RepeatedRow {
    fn add(&mut self, row: &CountRow) {
        self.value.add(row.value);
        self.enabled.add(row.enabled);
        self.running.add(row.running);
        if row.state == CountState::Counted {
            self.row.state = CountState::Counted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_standard_error_of_the_mean() {
        let mut s = Spread::default();
        assert_eq!((s.mean(), s.percent()), (0.0, 0.0));
        [2.0, 4.0, 6.0].iter().for_each(|&v| s.add(v));
        assert_eq!(s.mean(), 4.0);
        assert!((s.error() - (4.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
