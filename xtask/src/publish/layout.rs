//! An OCI image layout of components: the "Wasm OCI Artifact layout" of the CNCF, version 0.
//!
//! An artifact is an image manifest with one layer, `application/wasm`, which is the component as it is, and a configuration
//! that tells what the component imports and exports. By the type of the configuration it is known for what it is; so there
//! is no `artifactType`, which older registries refuse.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wit_component::DecodedWasm;
use wit_parser::{PackageId, Resolve, WorldId};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const LAYER: &str = "application/wasm";

/// The version of image layouts, of which there is one.
const LAYOUT_VERSION: &str = "1.0.0";

/// How the annotations begin that OCI defines.
const ANNOTATION: &str = "org.opencontainers.image";

/// What is to be published.
#[derive(Debug, Clone)]
pub(super) struct Artifact {
    /// Its name within the namespace, and in the layout.
    pub(super) name: String,
    /// Its version, which is its tag in a registry.
    pub(super) version: String,
    /// As an SPDX expression.
    pub(super) license: String,
    /// What it is, in a sentence, if there is more to say than its name.
    pub(super) description: Option<String>,
    /// The component, or the package of WIT.
    pub(super) bytes: Vec<u8>,
}

/// An artifact as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its name in the layout.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// The digest of its manifest, by which it is pinned.
    pub(super) digest: String,
    /// The size of the component.
    pub(super) bytes: usize,
    /// What the component needs of its host.
    pub(super) imports: Vec<String>,
}

/// A layout on disk.
#[derive(Debug)]
pub(super) struct Layout {
    folder: PathBuf,
}

/// The digest of something, as OCI writes it.
pub(super) fn digest(bytes: &[u8]) -> String {
    let hex = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{hex}")
}

impl Layout {
    /// Writes the artifacts, in place of whatever was there. `created` is the time that they carry.
    pub(super) fn write(folder: PathBuf, artifacts: &[Artifact], created: &str) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let layout = Self { folder };
        let manifests = artifacts.iter().map(|artifact| {
            let stored = layout.artifact(artifact, created);
            stored.with_context(|| format!("{} cannot be made ready", artifact.name))
        });
        let manifests = manifests.collect::<Result<Vec<_>>>()?;
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        layout.put("index.json", index.to_string().as_bytes())?;
        layout.put("oci-layout", json!({ "imageLayoutVersion": LAYOUT_VERSION }).to_string().as_bytes())?;
        Ok(layout)
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads every artifact, checking all that can be checked: that each blob is what its digest and its size say, and that
    /// the configuration tells what is in the component.
    pub(super) fn read_back(&self) -> Result<Vec<Stored>> {
        let marker = json_of(&self.get("oci-layout")?)?;
        ensure!(text(&marker, "/imageLayoutVersion")? == LAYOUT_VERSION, "it is a layout of another version");
        let index = json_of(&self.get("index.json")?)?;
        let manifests = index.pointer("/manifests").and_then(Value::as_array).context("the index lists nothing")?;
        manifests.iter().map(|descriptor| self.stored(descriptor)).collect()
    }

    fn artifact(&self, artifact: &Artifact, created: &str) -> Result<Value> {
        let Artifact { name, version, license, description, bytes } = artifact;
        let (imports, exports) = shape(bytes)?;
        let config = json!({
            "created": created,
            "architecture": "wasm",
            // The one name that the layout has for components, whichever version of WASI they import, if any.
            "os": "wasip2",
            "layerDigests": [digest(bytes)],
            "component": { "imports": imports, "exports": exports },
        });
        let mut about = vec![("created", created), ("licenses", license), ("title", name), ("version", version)];
        about.extend(description.as_deref().map(|description| ("description", description)));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(CONFIG, config.to_string().as_bytes(), &[])?,
            // By this title, tools that save layers name the file.
            "layers": [self.blob(LAYER, bytes, &[("title", &format!("{name}.wasm"))])?],
            "annotations": annotations(&about),
        });
        self.blob(MANIFEST, manifest.to_string().as_bytes(), &[("ref.name", name)])
    }

    fn stored(&self, descriptor: &Value) -> Result<Stored> {
        let name = text(descriptor, &format!("/annotations/{ANNOTATION}.ref.name"))?;
        let read = || {
            let manifest = json_of(&self.described(descriptor, MANIFEST)?)?;
            let part = |place: &str| manifest.pointer(place).with_context(|| format!("there is no `{place}`"));
            ensure!(manifest.pointer("/layers/1").is_none(), "there is more than one layer");
            let config = json_of(&self.described(part("/config")?, CONFIG)?)?;
            let layer = self.described(part("/layers/0")?, LAYER)?;
            let (imports, exports) = shape(&layer)?;
            ensure!(config.pointer("/layerDigests") == Some(&json!([digest(&layer)])), "the layer is another one");
            let told = json!({ "imports": imports, "exports": exports });
            ensure!(config.pointer("/component") == Some(&told), "the component has other imports or exports");
            let version = text(&manifest, &format!("/annotations/{ANNOTATION}.version"))?;
            let digest = text(descriptor, "/digest")?;
            Ok(Stored {
                name: name.clone(),
                version,
                digest,
                bytes: layer.len(),
                imports: imports.into_iter().collect(),
            })
        };
        read().with_context(|| format!("{name} is not as it should be"))
    }

    /// Keeps something under its digest; answers with how to refer to it, and what is said of it there.
    fn blob(&self, media_type: &str, bytes: &[u8], about: &[(&str, &str)]) -> Result<Value> {
        let (digest, size) = (digest(bytes), bytes.len());
        self.put(&place(&digest)?, bytes)?;
        let bare = json!({ "mediaType": media_type, "digest": digest, "size": size });
        let annotated = json!({
            "mediaType": media_type, "digest": digest, "size": size, "annotations": annotations(about)
        });
        Ok(if about.is_empty() { bare } else { annotated })
    }

    /// Reads what a descriptor refers to, if it is that.
    fn described(&self, descriptor: &Value, media_type: &str) -> Result<Vec<u8>> {
        let expected = text(descriptor, "/digest")?;
        ensure!(text(descriptor, "/mediaType")? == media_type, "{expected} is not of the type {media_type}");
        let bytes = self.get(&place(&expected)?)?;
        ensure!(descriptor.pointer("/size") == Some(&json!(bytes.len())), "{expected} is of another size");
        ensure!(digest(&bytes) == expected, "{expected} has another digest");
        Ok(bytes)
    }

    fn put(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(file);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    fn get(&self, file: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(file);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Annotations by the names that OCI has for them.
fn annotations(about: &[(&str, &str)]) -> Value {
    about.iter().map(|(name, value)| (format!("{ANNOTATION}.{name}"), json!(value))).collect()
}

/// The file of a blob: `blobs/sha256/…`.
fn place(digest: &str) -> Result<String> {
    let (algorithm, hex) = digest.split_once(':').with_context(|| format!("{digest} is no digest"))?;
    Ok(format!("blobs/{algorithm}/{hex}"))
}

fn json_of(bytes: &[u8]) -> Result<Value> {
    Ok(serde_json::from_slice(bytes)?)
}

fn text(json: &Value, pointer: &str) -> Result<String> {
    let text = json.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("there is no `{pointer}`"))
}

/// Imports and exports, in the order of names.
type Shape = (BTreeSet<String>, BTreeSet<String>);

/// What a component imports and exports. A package of WIT imports nothing, and exports what it defines.
fn shape(bytes: &[u8]) -> Result<Shape> {
    match wit_component::decode(bytes)? {
        DecodedWasm::Component(resolve, world) => component(&resolve, world),
        DecodedWasm::WitPackage(resolve, package) => definitions(&resolve, package),
    }
}

fn component(resolve: &Resolve, world: WorldId) -> Result<Shape> {
    let world = resolve.worlds.get(world).context("the component has no world")?;
    let imports = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
    Ok((imports, world.exports.keys().map(|key| resolve.name_world_key(key)).collect()))
}

fn definitions(resolve: &Resolve, package: PackageId) -> Result<Shape> {
    let package = resolve.packages.get(package).context("there is no package")?;
    let interfaces = package.interfaces.values().filter_map(|interface| resolve.id_of(*interface));
    let worlds = package.worlds.keys().map(|world| package.name.interface_id(world));
    Ok((BTreeSet::new(), interfaces.chain(worlds).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: &str = "2026-01-02T03:04:05Z";

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("rollcall-xtask-{}-layout-{name}", std::process::id()))
    }

    fn artifact(name: &str) -> Result<Artifact> {
        let mut resolve = Resolve::default();
        let source =
            format!("package test:{name}@1.2.3; interface nouns {{ type t = u8; }} world w {{ import nouns; }}");
        let package = resolve.push_source("test.wit", &source)?;
        let bytes = wit_component::encode(&resolve, package)?;
        let (version, license) = ("1.2.3".to_owned(), "Apache-2.0".to_owned());
        Ok(Artifact { name: name.to_owned(), version, license, description: None, bytes })
    }

    #[test]
    fn digest_is_that_of_sha_256() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }

    #[test]
    fn what_is_written_reads_back() -> Result<()> {
        let artifacts = [artifact("bell")?, artifact("whistle")?];
        let layout = Layout::write(folder("whole"), &artifacts, CREATED)?;
        let stored = layout.read_back()?;
        let names: Vec<_> = stored.iter().map(|one| (one.name.as_str(), one.version.as_str(), one.bytes)).collect();
        let [bell, whistle] = &artifacts;
        assert_eq!(names, [("bell", "1.2.3", bell.bytes.len()), ("whistle", "1.2.3", whistle.bytes.len())]);
        assert_eq!(shape(&bell.bytes)?.1, ["test:bell/nouns@1.2.3", "test:bell/w@1.2.3"].map(str::to_owned).into());
        Ok(fs::remove_dir_all(layout.folder())?)
    }

    #[test]
    fn same_artifacts_have_the_same_digests_and_nothing_older_stays() -> Result<()> {
        let first = Layout::write(folder("again"), &[artifact("bell")?, artifact("whistle")?], CREATED)?.read_back()?;
        let layout = Layout::write(folder("again"), &[artifact("bell")?], CREATED)?;
        assert_eq!(first.get(..1), Some(layout.read_back()?.as_slice()));
        assert_eq!(fs::read_dir(layout.folder().join("blobs/sha256"))?.count(), 3);
        Ok(fs::remove_dir_all(layout.folder())?)
    }

    #[test]
    fn blob_that_changed_is_found() -> Result<()> {
        let layout = Layout::write(folder("changed"), &[artifact("bell")?], CREATED)?;
        for blob in fs::read_dir(layout.folder().join("blobs/sha256"))? {
            let path = blob?.path();
            let whole = fs::read(&path)?;
            let mut changed = whole.clone();
            if let Some(last) = changed.last_mut() {
                *last ^= 1;
            }
            for broken in [changed, whole.get(1..).unwrap_or_default().to_vec()] {
                fs::write(&path, broken)?;
                let error = layout.read_back().err().map(|error| format!("{error:#}")).unwrap_or_default();
                assert!(error.starts_with("bell is not as it should be: sha256:"), "{error}");
            }
            fs::write(&path, whole)?;
        }
        assert!(layout.read_back().is_ok());
        Ok(fs::remove_dir_all(layout.folder())?)
    }
}
