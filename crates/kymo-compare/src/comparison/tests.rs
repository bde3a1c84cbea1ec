//! Tests of comparisons with synthetic runs whose truth is known.

use super::*;
use crate::random::Random;
use crate::sums::StackFrameKey;

/// A run of Poisson samples: name of the function, mean number of samples; each called by `work`.
fn run(random: &mut Random, name: &str, functions: &[(&str, f64)], period: f64) -> RunSums {
    let mut run = RunSums::new(name, 1.0);
    let frame = |run: &mut RunSums, name: &str| StackFrameKey {
        function: run.function(FunctionKey::new(name, "a", false)),
        is_inlined: false,
    };
    let work = frame(&mut run, "work");
    for (name, mean) in functions {
        let function = frame(&mut run, name);
        let samples = random.poisson(*mean);
        run.add_stack(&[function, work], samples as f64 * period, samples);
    }
    run
}

fn measure(before: Vec<RunSums>, after: Vec<RunSums>) -> Measure {
    Measure {
        kind: MeasureKind::Samples,
        name: "cpu-clock".into(),
        unit: "nanoseconds",
        before,
        after,
    }
}

fn compare(
    seed: u64,
    runs: usize,
    before: (&[(&str, f64)], f64),
    after: (&[(&str, f64)], f64),
) -> Comparison {
    let mut random = Random::new(seed, 9);
    let mut side = |(functions, period): (&[(&str, f64)], f64)| -> Vec<RunSums> {
        (0..runs).map(|i| run(&mut random, &format!("run {i}"), functions, period)).collect()
    };
    let measure = measure(side(before), side(after));
    Comparison::new(&[measure], &CompareOptions::default()).expect("two sides")
}

#[test]
fn a_function_five_percent_slower_is_named_first_with_its_caller() {
    let before = [("parse", 800.0), ("render", 500.0), ("lex", 60.0)];
    let after = [("parse", 800.0 * 1.05), ("render", 500.0), ("lex", 60.0)];
    // 16,000 samples a side: found in more than nine of ten tries.
    let tries = 40;
    let first = (0..tries).filter(|seed| {
        let compared = compare(*seed, 20, (&before, 1e6), (&after, 1e6));
        let row = &compared.measures[0].rows[0];
        let is_more = row.own.is_some_and(|own| own.verdict == Verdict::More);
        row.key.name == "parse" && is_more && row.callers[0].name == "work"
    });
    let first = first.count();
    assert!(first >= 34, "{first} of {tries}");
}

#[test]
fn a_different_sampling_rate_is_no_change() {
    // 1,000 Hz against 100 Hz of one program: the period makes up for it.
    let (fast, slow) = ([("parse", 600.0), ("lex", 400.0)], [("parse", 60.0), ("lex", 40.0)]);
    for seed in 0..10 {
        let compared = compare(seed, 20, (&fast, 1e6), (&slow, 1e7));
        let changed = compared.measures[0].rows.iter().filter_map(|r| r.own);
        let changes = changed.filter(|c| c.verdict.is_change() && c.p <= 0.01).count();
        assert_eq!(changes, 0, "seed {seed}");
    }
}

#[test]
fn a_function_with_few_samples_is_undecided() {
    // 3 % of the samples, 50 in all a side.
    let before = [("f", 2.5), ("g", 80.0)];
    for seed in 0..10 {
        let compared = compare(seed, 20, (&before, 1e6), (&before, 1e6));
        let row = compared.measures[0].rows.iter().find(|r| r.key.name == "f").expect("tested");
        let own = row.own.expect("above the floor");
        assert!(matches!(own.verdict, Verdict::Undecided { .. }) || own.p <= 0.05, "{own:?}");
    }
}

#[test]
fn new_and_vanished_functions_are_named_so() {
    let compared =
        compare(3, 8, (&[("old", 20.0), ("x", 90.0)], 1e6), (&[("new", 20.0), ("x", 90.0)], 1e6));
    let verdict = |name: &str| {
        let row = compared.measures[0].rows.iter().find(|r| r.key.name == name);
        row.and_then(|r| r.own).map(|c| c.verdict)
    };
    assert_eq!(verdict("old"), Some(Verdict::Vanished));
    assert_eq!(verdict("new"), Some(Verdict::New));
}

#[test]
fn one_run_decides_nothing_and_no_samples_are_refused() {
    let mut random = Random::new(1, 1);
    let mut one = |mean| run(&mut random, "a", &[("f", mean), ("g", 500.0)], 1.0);
    // 60 runs after make the p-value small.
    for after in [1, 2, 60] {
        let after: Vec<RunSums> = (0..after).map(|_| one(400.0)).collect();
        let measures = [measure(vec![one(50.0)], after)];
        let compared = Comparison::new(&measures, &CompareOptions::default()).expect("two sides");
        let rows = &compared.measures[0].rows;
        let own = rows[0].own.expect("above the floor");
        assert_eq!(rows[0].key.name, "f", "what differs most comes first");
        assert_eq!(own.verdict, Verdict::Undecided { more_runs: Some(3) });
        assert_eq!(own.estimate, None);
    }
    let refused =
        Comparison::new(&[measure(Vec::new(), vec![one(9.0)])], &CompareOptions::default());
    assert_eq!(refused.err(), Some(CompareError::NoRuns { before: 0, after: 1 }));
    let empty = || vec![RunSums::new("e", 1.0), RunSums::new("e", 1.0)];
    let measures = [measure(empty(), vec![one(9.0), one(9.0)])];
    let refused = Comparison::new(&measures, &CompareOptions::default());
    assert_eq!(refused.err(), Some(CompareError::NoSamples("before")));
}

#[test]
fn three_runs_never_decide() {
    let compared = compare(1, 3, (&[("f", 100.0)], 1.0), (&[("f", 300.0)], 1.0));
    let own = compared.measures[0].rows[0].own.expect("above the floor");
    assert_eq!(own.verdict, Verdict::Undecided { more_runs: Some(1) });
}

#[test]
fn a_stalled_run_is_named_and_alarms_nobody() {
    let mut random = Random::new(4, 4);
    let mut side = || -> Vec<RunSums> {
        (0..20).map(|i| run(&mut random, &format!("run {i}"), &[("f", 300.0)], 1.0)).collect()
    };
    let (before, mut after) = (side(), side());
    after[7].whole *= 12.0;
    let compared =
        Comparison::new(&[measure(before, after)], &CompareOptions::default()).expect("two sides");
    assert_eq!(compared.stalled.len(), 1);
    assert_eq!(compared.stalled[0].name, "run 7");
    assert!(!compared.measures[0].whole.verdict.is_change());
}

/// 3 % of the time with 50 samples on each side: by chance all runs may have the same number.
#[test]
fn a_few_samples_that_are_alike_in_all_runs_are_undecided() {
    let side = || -> Vec<RunSums> {
        let one = |n: usize| {
            let mut run = RunSums::new(format!("run {n}"), 1.0);
            let mut frame = |name: &str| StackFrameKey {
                function: run.function(FunctionKey::new(name, "a", false)),
                is_inlined: false,
            };
            let (rare, common) = (frame("rare"), frame("common"));
            run.add_stack(&[rare], 8e6, 8);
            run.add_stack(&[common], 250e6 + n as f64 * 1e5, 250);
            run
        };
        (0..6).map(one).collect()
    };
    let compared = Comparison::new(&[measure(side(), side())], &CompareOptions::default());
    let compared = compared.expect("two sides");
    let rare = compared.measures[0].rows.iter().find(|r| r.key.name == "rare");
    let own = rare.and_then(|r| r.own).expect("above the floor");
    assert!(matches!(own.verdict, Verdict::Undecided { more_runs: Some(_) }), "{own:?}");
    let common = compared.measures[0].rows.iter().find(|r| r.key.name == "common");
    let own = common.and_then(|r| r.own).expect("above the floor");
    assert!(matches!(own.verdict, Verdict::NoChange { .. }), "{own:?}");
}

/// 1,000 Hz against 100 Hz of one program of 446 ms: 446 or 447 samples, and always 44.
#[test]
fn samples_that_are_too_few_for_a_difference_show_none() {
    let side = |samples: &[u64], period: f64| -> Vec<RunSums> {
        let one = |(n, samples): (usize, &u64)| {
            let mut run = RunSums::new(format!("run {n}"), 1.0);
            let key = FunctionKey::new("work", "a", false);
            let frame = StackFrameKey { function: run.function(key), is_inlined: false };
            run.add_stack(&[frame], *samples as f64 * period, *samples);
            run
        };
        samples.iter().enumerate().map(one).collect()
    };
    let fine = side(&[446, 447, 446, 446, 447, 446, 447, 446], 1e6);
    let coarse = side(&[44; 8], 1e7);
    let compared = Comparison::new(&[measure(fine, coarse)], &CompareOptions::default());
    let whole = compared.expect("two sides").measures[0].whole;
    assert!(whole.p <= 0.05, "ranks differ: {whole:?}");
    assert!(!whole.verdict.is_change(), "{whole:?}");
}

#[test]
fn amounts_of_what_comes_in_bursts_are_means() {
    // In 6 of 20 blocks of time there is something of it; the other function is always there.
    let side = |burst: f64| -> Vec<RunSums> {
        let block = |number: usize| {
            let mut run = RunSums::new(format!("block {number}"), 1.0);
            let frame = |run: &mut RunSums, name: &str| StackFrameKey {
                function: run.function(FunctionKey::new(name, "a", false)),
                is_inlined: false,
            };
            let (steady, bursty) = (frame(&mut run, "steady"), frame(&mut run, "bursty"));
            run.add_stack(&[steady], 40.0, 40);
            if number % 10 < 3 {
                run.add_stack(&[bursty], burst, burst as u64);
            }
            run
        };
        (0..20).map(block).collect()
    };
    let measure = measure(side(10.0), side(30.0));
    let compared = Comparison::new(&[measure], &CompareOptions::default()).expect("two sides");
    let own = |name: &str| {
        let row = compared.measures[0].rows.iter().find(|row| row.key.name == name);
        row.and_then(|row| row.own).expect("a row")
    };
    let bursty = own("bursty");
    assert_eq!((bursty.before, bursty.after, bursty.is_mean), (3.0, 9.0, true));
    // A ratio of medians there is none.
    assert_eq!(bursty.estimate, None);
    let steady = own("steady");
    assert_eq!((steady.before, steady.after, steady.is_mean), (40.0, 40.0, false));
}
