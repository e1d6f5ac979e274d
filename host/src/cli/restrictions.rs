//! Imports restricted accounts from a file, and exports them.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use rollcall_store::PolicyStore;
use rollcall_store::policies::files::{Exported, Format, ImportAction, export, read_bitmap, read_ids};

use super::flags::SettingFlags;
use crate::config::Config;
use crate::storage;

/// The commands of `restrictions`.
#[derive(Debug, Subcommand)]
pub enum RestrictionsCommand {
    /// Restrict every account in a file, or lift their restrictions.
    Import(ImportArgs),
    /// Write every restricted account into a file.
    Export(ExportArgs),
}

impl RestrictionsCommand {
    /// The settings that were given.
    pub fn settings(&self) -> &SettingFlags {
        match self {
            Self::Import(args) => &args.settings,
            Self::Export(args) => &args.settings,
        }
    }
}

/// What to import, and how.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file: one id a line; blank lines and lines that begin with # are skipped
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The file is a bitmap instead: bit i is account i, the first is the highest bit of the first byte
    #[arg(long)]
    pub bitmap: bool,
    /// Lift the restrictions of these accounts instead
    #[arg(long)]
    pub lift: bool,
    /// The settings: where the store is.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// Where to export to, and how.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file, or - for standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a bitmap, which cannot contain ids that are not numbers
    #[arg(long)]
    pub bitmap: bool,
    /// The settings: where the store is.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// Runs a command. Returns the message for standard error.
pub fn restrictions(command: &RestrictionsCommand, config: &Config) -> Result<String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let (policies, _lock) = storage::policies(config).await?;
        match command {
            RestrictionsCommand::Import(args) => import(policies, args).await,
            RestrictionsCommand::Export(args) => write(policies, args).await,
        }
    })
}

async fn import(policies: Arc<dyn PolicyStore>, args: &ImportArgs) -> Result<String> {
    let named = || format!("cannot import {}", args.file.display());
    let action = if args.lift { ImportAction::Unrestrict } else { ImportAction::Restrict };
    let bar = progress_bar();
    let progress = |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    };
    let batches = match args.bitmap {
        true => read_bitmap(&args.file, action, progress),
        false => read_ids(&args.file, action, progress),
    };
    let batches = batches.with_context(named)?;
    let (mut changes, mut failed) = (0_u64, None);
    for batch in batches {
        let batch = batch.with_context(named)?;
        for outcome in policies.apply_many(batch).await.with_context(named)? {
            match outcome {
                Ok(()) => changes += 1,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            // Importing again is idempotent.
            bail!(
                "cannot import {}: {error}; the changes before it are in force; importing again is safe",
                args.file.display()
            );
        }
    }
    bar.finish_and_clear();
    let done = if args.lift { "lifted the restrictions of" } else { "restricted" };
    Ok(format!("{done} the accounts in {} ({changes} changes)\n", args.file.display()))
}

async fn write(policies: Arc<dyn PolicyStore>, args: &ExportArgs) -> Result<String> {
    let format = if args.bitmap { Format::Bitmap } else { Format::Ids };
    let Exported { accounts, left_out } = if args.file == Path::new("-") {
        export(&*policies, &mut std::io::stdout(), format).await?
    } else {
        let named = || format!("cannot write {}", args.file.display());
        let mut file = BufWriter::new(std::fs::File::create(&args.file).with_context(named)?);
        let exported = export(&*policies, &mut file, format).await.with_context(named)?;
        file.flush().with_context(named)?;
        exported
    };
    let without = match left_out {
        0 => String::new(),
        some => format!("; {some} have ids that this format cannot express, and are not in it"),
    };
    Ok(format!("wrote {accounts} restricted accounts{without}\n"))
}

/// Drawn to standard error, if that is a terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {bytes}/{total_bytes}  {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
