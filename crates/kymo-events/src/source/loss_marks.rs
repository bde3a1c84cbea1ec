//! Losses that were read and not yet handed on: they are reported with the next event of their CPU.

/// Losses by CPU; hardly ever any.
#[derive(Default)]
pub(super) struct LossMarks(Vec<(Option<u32>, u64)>);

impl LossMarks {
    /// Remembers that events of a CPU were lost; `None`: of any. `lost` is 0 where their
    /// number is not known.
    #[cold]
    pub(super) fn note(&mut self, cpu: Option<u32>, lost: u64) {
        match self.0.iter_mut().find(|(of, _)| *of == cpu) {
            Some((_, sum)) => *sum = sum.saturating_add(lost),
            None => self.0.push((cpu, lost)),
        }
    }

    /// Losses that the next event, which is of `cpu`, has to tell of.
    #[inline]
    pub(super) fn take(&mut self, cpu: impl FnOnce() -> Option<u32>) -> Option<u64> {
        if self.0.is_empty() { None } else { self.take_of(cpu()) }
    }

    #[cold]
    fn take_of(&mut self, cpu: Option<u32>) -> Option<u64> {
        let mut taken = None;
        self.0.retain(|(of, lost)| {
            let is_told = of.is_none() || *of == cpu;
            if is_told {
                taken = Some(taken.unwrap_or(0u64).saturating_add(*lost));
            }
            !is_told
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_event_of_the_cpu_tells_of_a_loss() {
        let mut marks = LossMarks::default();
        assert_eq!(marks.take(|| Some(0)), None);
        marks.note(Some(1), 3);
        marks.note(Some(1), 4);
        assert_eq!((marks.take(|| Some(0)), marks.take(|| Some(1))), (None, Some(7)));
        marks.note(None, 0);
        assert_eq!((marks.take(|| Some(5)), marks.take(|| Some(5))), (Some(0), None));
    }
}
