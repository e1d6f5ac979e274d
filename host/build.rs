//! Lists the files of the console, so that `main` can embed them: see `src/embedded.rs` and `src/http/console.rs`.
//!
//! The folder is ROLLCALL_CONSOLE, which `cargo xtask build` fills. If it is missing the list is empty, and the program
//! explains how to build the console instead of serving it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=ROLLCALL_CONSOLE");
    let folder = PathBuf::from(std::env::var("ROLLCALL_CONSOLE")?);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    if folder.is_dir() {
        collect(&folder, &mut files)?;
    }
    files.sort_unstable();
    let mut text = String::from("/// The console's files, by their paths on the server.\n");
    text.push_str("pub(crate) static CONSOLE: &[(&str, &[u8])] = &[\n");
    for file in files {
        let name = file.strip_prefix(&folder)?.to_str().ok_or("a file of the console has a name that is not UTF-8")?;
        let path = if name == "index.html" { "/".to_owned() } else { format!("/{}", name.replace('\\', "/")) };
        writeln!(text, "    ({path:?}, include_bytes!({:?})),", file.display().to_string())?;
    }
    text.push_str("];\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("console.rs"), text)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
