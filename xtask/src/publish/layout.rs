//! An OCI image layout of components, as the CNCF's "Wasm OCI Artifact layout" version 0 defines it.
//!
//! An artifact is an image manifest with one layer, the component as `application/wasm`, and a configuration that lists the
//! imports and exports of the component. The media type of the configuration identifies the artifact; there is no
//! `artifactType`, because older registries refuse it.

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

/// The only version of image layouts.
const LAYOUT_VERSION: &str = "1.0.0";

/// Prefix of the annotations that OCI defines.
const ANNOTATION: &str = "org.opencontainers.image";

/// Something to publish.
#[derive(Debug, Clone)]
pub(super) struct Artifact {
    /// Its name in the namespace and in the layout.
    pub(super) name: String,
    /// Its version, and its tag in a registry.
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: String,
    /// One sentence about it.
    pub(super) description: Option<String>,
    /// The component, or the binary WIT package.
    pub(super) bytes: Vec<u8>,
}

/// An artifact that was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its name in the layout.
    pub(super) name: String,
    /// Its version.
    pub(super) version: String,
    /// The digest of its manifest.
    pub(super) digest: String,
    /// The size of the component.
    pub(super) bytes: usize,
    /// The imports of the component.
    pub(super) imports: Vec<String>,
}

/// A layout on disk.
#[derive(Debug)]
pub(super) struct Layout {
    folder: PathBuf,
}

/// The SHA-256 digest in the notation of OCI.
pub(super) fn digest(bytes: &[u8]) -> String {
    let hex = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{hex}")
}

impl Layout {
    /// Writes the artifacts and removes an older layout. `created` is the time in their annotations.
    pub(super) fn write(folder: PathBuf, artifacts: &[Artifact], created: &str) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let layout = Self { folder };
        let manifests = artifacts.iter().map(|artifact| {
            let stored = layout.artifact(artifact, created);
            stored.with_context(|| format!("cannot write {}", artifact.name))
        });
        let manifests = manifests.collect::<Result<Vec<_>>>()?;
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        layout.put("index.json", index.to_string().as_bytes())?;
        layout.put("oci-layout", json!({ "imageLayoutVersion": LAYOUT_VERSION }).to_string().as_bytes())?;
        Ok(layout)
    }

    /// The folder of the layout.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads every artifact and checks that each blob has its digest and size, and that the configuration matches the component.
    pub(super) fn read_back(&self) -> Result<Vec<Stored>> {
        let marker = json_of(&self.get("oci-layout")?)?;
        ensure!(text(&marker, "/imageLayoutVersion")? == LAYOUT_VERSION, "the layout has another version");
        let index = json_of(&self.get("index.json")?)?;
        let manifests = index.pointer("/manifests").and_then(Value::as_array).context("the index has no manifests")?;
        manifests.iter().map(|descriptor| self.stored(descriptor)).collect()
    }

    fn artifact(&self, artifact: &Artifact, created: &str) -> Result<Value> {
        let Artifact { name, version, license, description, bytes } = artifact;
        let (imports, exports) = shape(bytes)?;
        let config = json!({
            "created": created,
            "architecture": "wasm",
            // The only value that the specification has for components, whatever they import.
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
            // Tools that save a layer use the title as its file name.
            "layers": [self.blob(LAYER, bytes, &[("title", &format!("{name}.wasm"))])?],
            "annotations": annotations(&about),
        });
        self.blob(MANIFEST, manifest.to_string().as_bytes(), &[("ref.name", name)])
    }

    fn stored(&self, descriptor: &Value) -> Result<Stored> {
        let name = text(descriptor, &format!("/annotations/{ANNOTATION}.ref.name"))?;
        let read = || {
            let manifest = json_of(&self.described(descriptor, MANIFEST)?)?;
            let part = |place: &str| manifest.pointer(place).with_context(|| format!("`{place}` is missing"));
            ensure!(manifest.pointer("/layers/1").is_none(), "the manifest has more than one layer");
            let config = json_of(&self.described(part("/config")?, CONFIG)?)?;
            let layer = self.described(part("/layers/0")?, LAYER)?;
            let (imports, exports) = shape(&layer)?;
            ensure!(
                config.pointer("/layerDigests") == Some(&json!([digest(&layer)])),
                "the configuration has the digest of another layer"
            );
            let listed = json!({ "imports": imports, "exports": exports });
            ensure!(config.pointer("/component") == Some(&listed), "the configuration lists other imports or exports");
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
        read().with_context(|| format!("{name} is not valid"))
    }

    /// Writes a blob and returns its descriptor, with these annotations.
    fn blob(&self, media_type: &str, bytes: &[u8], about: &[(&str, &str)]) -> Result<Value> {
        let (digest, size) = (digest(bytes), bytes.len());
        self.put(&place(&digest)?, bytes)?;
        let bare = json!({ "mediaType": media_type, "digest": digest, "size": size });
        let annotated = json!({
            "mediaType": media_type, "digest": digest, "size": size, "annotations": annotations(about)
        });
        Ok(if about.is_empty() { bare } else { annotated })
    }

    /// Reads the blob of a descriptor and checks its media type, size and digest.
    fn described(&self, descriptor: &Value, media_type: &str) -> Result<Vec<u8>> {
        let expected = text(descriptor, "/digest")?;
        ensure!(text(descriptor, "/mediaType")? == media_type, "{expected} is not of the media type {media_type}");
        let bytes = self.get(&place(&expected)?)?;
        ensure!(descriptor.pointer("/size") == Some(&json!(bytes.len())), "{expected} has another size");
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

/// Annotations with the prefix of OCI.
fn annotations(about: &[(&str, &str)]) -> Value {
    about.iter().map(|(name, value)| (format!("{ANNOTATION}.{name}"), json!(value))).collect()
}

/// The file of a blob: `blobs/sha256/…`.
fn place(digest: &str) -> Result<String> {
    let (algorithm, hex) = digest.split_once(':').with_context(|| format!("{digest} is not a digest"))?;
    Ok(format!("blobs/{algorithm}/{hex}"))
}

fn json_of(bytes: &[u8]) -> Result<Value> {
    Ok(serde_json::from_slice(bytes)?)
}

fn text(json: &Value, pointer: &str) -> Result<String> {
    let text = json.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("`{pointer}` is missing"))
}

/// Imports and exports, sorted by name.
type Shape = (BTreeSet<String>, BTreeSet<String>);

/// The imports and exports of a component. A WIT package imports nothing and exports its interfaces and worlds.
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
    let package = resolve.packages.get(package).context("the package is missing")?;
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
    fn digest_is_sha_256() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }

    #[test]
    fn written_layout_reads_back() -> Result<()> {
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
    fn digests_repeat_and_older_blobs_are_removed() -> Result<()> {
        let first = Layout::write(folder("again"), &[artifact("bell")?, artifact("whistle")?], CREATED)?.read_back()?;
        let layout = Layout::write(folder("again"), &[artifact("bell")?], CREATED)?;
        assert_eq!(first.get(..1), Some(layout.read_back()?.as_slice()));
        assert_eq!(fs::read_dir(layout.folder().join("blobs/sha256"))?.count(), 3);
        Ok(fs::remove_dir_all(layout.folder())?)
    }

    #[test]
    fn changed_blob_is_detected() -> Result<()> {
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
                assert!(error.starts_with("bell is not valid: sha256:"), "{error}");
            }
            fs::write(&path, whole)?;
        }
        assert!(layout.read_back().is_ok());
        Ok(fs::remove_dir_all(layout.folder())?)
    }
}
