//! From addresses to functions and lines: Debian's kernel with debugging information,
//! asked by this project's reader, by binutils and by gimli's `addr2line` crate.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use object::{Object as _, ObjectSymbol as _, SymbolKind};

use super::Effort;
use super::measure::{Cost, cold, interleaved, output};
use super::rows::{Bench, Row, megabytes, seconds};
use crate::vm;

/// Compared readers.
const READERS: [&str; 3] = ["binutils", "gimli", "kymo"];

impl Bench<'_> {
    /// Time, memory, and whether the answers are the same.
    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<Row>> {
        let count = if self.effort() == Effort::Full { 20_000 } else { 1000 };
        let vmlinux = vm::vmlinux()?;
        let example = ["build", "--release", "-p", "kymo-symbols", "--example", "addresses"];
        let reader = crate::cargo::build(&example)?;
        let list = self.dir().join("addresses.txt");
        let addresses = addresses(&vmlinux, count)?;
        std::fs::write(&list, &addresses).with_context(|| list.display().to_string())?;
        let ask = |who: &str| asking(who, &reader, &vmlinux, &list);
        let [binutils, gimli, kymo] = READERS.map(|who| move || ask(who));
        let commands: [&dyn Fn() -> Command; 3] = [&binutils, &gimli, &kymo];
        let warm = interleaved(self.rounds(3), &commands)?;
        let files: [&Path; 1] = [&vmlinux];
        let cold = cold(self.rounds(3), &files, &commands)?;
        let answers = READERS.map(|who| output(ask(who)).map(|text| innermost(&text)));
        let [binutils, gimli, kymo] = answers;
        let (kymo, n) = (kymo?, addresses.lines().count());
        let same = |other: Vec<String>| -> f64 {
            let equal = kymo.iter().zip(&other).filter(|(a, b)| a == b).count();
            100.0 * equal as f64 / n as f64
        };
        let agree = format!(
            "innermost function and line as binutils: {:.1} %, as gimli: {:.1} %",
            same(binutils?),
            same(gimli?)
        );
        let what = format!("addresses to functions and lines, {n} of Debian's vmlinux");
        let mut rows = vec![timed(what, &warm, Some(n))?];
        rows.push(Row {
            what: "the same, peak memory".into(),
            installed: both(&warm, |c| megabytes(c.peak)),
            kymo: warm.get(2).map_or_else(String::new, |c| megabytes(c.peak)),
            verdict: agree,
            ..Row::default()
        });
        let what = "the same, cold page cache (the file dropped by posix_fadvise)";
        rows.push(timed(what.into(), &cold, None)?);
        Ok(rows)
    }
}

fn both(costs: &[Cost], show: impl Fn(&Cost) -> String) -> String {
    let of = |n: usize| costs.get(n).map_or_else(String::new, &show);
    format!("binutils {}; gimli {}", of(0), of(1))
}

fn timed(what: String, costs: &[Cost], count: Option<usize>) -> anyhow::Result<Row> {
    let [binutils, gimli, kymo] = costs else { bail!("three readers have three costs") };
    let ratio = |c: &Cost| c.time.as_secs_f64() / kymo.time.as_secs_f64();
    let rate = count.map_or_else(String::new, |n| {
        format!(" ({:.0} addresses a second)", n as f64 / kymo.time.as_secs_f64())
    });
    Ok(Row {
        what,
        installed: both(costs, |c| seconds(c.time.as_secs_f64())),
        kymo: format!("{}{rate}", seconds(kymo.time.as_secs_f64())),
        verdict: format!("{:.1}×; {:.1}× as fast", ratio(binutils), ratio(gimli)),
        ..Row::default()
    })
}

fn asking(who: &str, reader: &Path, vmlinux: &Path, list: &Path) -> Command {
    if who == "binutils" {
        let mut command = Command::new("addr2line");
        command.args(["-f", "-i", "-a", "-e"]).arg(vmlinux).arg(format!("@{}", list.display()));
        return command;
    }
    let mut command = Command::new(reader);
    command.arg(who).arg(vmlinux).arg(list);
    command
}

/// Addresses in the middle of functions, ascending, one a line.
fn addresses(vmlinux: &PathBuf, count: usize) -> anyhow::Result<String> {
    let bytes = std::fs::read(vmlinux).with_context(|| vmlinux.display().to_string())?;
    let file = object::File::parse(&*bytes).context("vmlinux")?;
    let functions = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
    let mut places: Vec<u64> = functions.map(|s| s.address() + s.size() / 2).collect();
    places.sort_unstable();
    places.dedup();
    let step = (places.len() / count).max(1);
    let chosen = places.iter().step_by(step).take(count);
    Ok(chosen.map(|a| format!("{a:#018x}\n")).collect())
}

/// Function, file's name and line of the innermost frame of each address.
fn innermost(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let name = |place: &str| {
        // binutils adds ` (discriminator N)`.
        let place = place.split(" (").next().unwrap_or(place);
        place.rsplit('/').next().unwrap_or(place).replace(":?", ":0")
    };
    let begins = lines.iter().enumerate().filter(|(_, l)| l.starts_with("0x"));
    let frame = |at: usize| Some(format!("{} {}", lines.get(at + 1)?, name(lines.get(at + 2)?)));
    begins.map(|(at, _)| frame(at).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_by_function_and_line() {
        let binutils = "0x0000000000000010\nf\n/src/a.c:7 (discriminator 3)\ng\n/src/b.c:1\n\
                        0x0000000000000020\n??\n??:?\n";
        let other = "0x0000000000000010\nf\na.c:7\ng\nb.c:1\n0x0000000000000020\n??\n??:0\n";
        assert_eq!(innermost(binutils), ["f a.c:7", "?? ??:0"]);
        assert_eq!(innermost(other), innermost(binutils));
    }
}
