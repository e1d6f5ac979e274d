//! Lists the components, so that one that no test runs stops the build: see `tests/components.rs`.

use std::fmt::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("../components");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().replace('-', "_"));
        }
    }
    names.sort_unstable();
    let mut text = String::from(
        "/// Hands each component's name to a macro.\nmacro_rules! for_each_component {\n    ($claim:ident) => {\n",
    );
    for name in names {
        writeln!(text, "        $claim!({name});")?;
    }
    text.push_str("    };\n}\n");
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("components.rs"), text)?;
    Ok(())
}
