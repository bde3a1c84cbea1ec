//! `kymo check`: whether this build has a part that scripts look for by perf's name.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;

use super::features::{self, Feature};

/// Flags of `kymo check`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Report whether features are built in; exit with status 1 if one is not
    Feature(FeatureArgs),
}

#[derive(clap::Args)]
struct FeatureArgs {
    /// Comma-separated names, as in `kymo version --build-options`
    #[arg(required = true, value_name = "NAME", value_delimiter = ',')]
    names: Vec<String>,
    /// Print nothing, only set the exit status
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Feature(args) = args.what;
    let features = args.names.iter().map(|name| find(name));
    let features: Vec<&Feature> = features.collect::<anyhow::Result<_>>()?;
    if !args.quiet {
        let text: String = features.iter().map(|feature| feature.line()).collect();
        crate::streams::stdout().write_all(text.as_bytes())?;
    }
    Ok(ExitCode::from(u8::from(!features.iter().all(|feature| feature.is_on))))
}

fn find(name: &str) -> anyhow::Result<&'static Feature> {
    let Some(feature) = features::named(name) else {
        bail!("unknown feature '{name}'; `kymo version --build-options` lists them");
    };
    Ok(feature)
}
