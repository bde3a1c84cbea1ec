//! What any room may have to say about a result beside the result itself. The
//! command collects these notes into the ledger (`kymo_view::Ledger`), which
//! lays them out and decides about `--strict`.

/// One thing to know about a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A stable word for scripts: `lost`, `throttled`, `unresolved`, `multiplexed`, …
    pub kind: &'static str,
    /// What happened, with the figures.
    pub fact: String,
    /// The way out, where there is one.
    pub advice: Option<String>,
    /// Whether it lessens the trust in the result, or only tells of a choice
    /// that was made for the user.
    pub weight: Weight,
}

/// What a note means for the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// The result is not all that was asked for: `--strict` fails.
    #[default]
    Doubt,
    /// The result is what was asked for; this says how it was come by.
    Told,
}

impl Note {
    /// A reason for less than full trust.
    pub fn doubt(kind: &'static str, fact: impl Into<String>, advice: Option<String>) -> Note {
        Note { kind, fact: fact.into(), advice, weight: Weight::Doubt }
    }

    /// A choice made for the user, or another fact that takes nothing from the result.
    pub fn told(kind: &'static str, fact: impl Into<String>, advice: Option<String>) -> Note {
        Note { kind, fact: fact.into(), advice, weight: Weight::Told }
    }
}
