//! The program as an OCI image with a single layer and no base (image specification 1.1), in a tar
//! that podman, skopeo and containerd load.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{run, tar};

/// Writes the image: the program as `/kymo`, which is also the entry point, and an empty `/tmp`.
pub(super) fn write(
    program: &Path,
    architecture: &str,
    version: &str,
    to: &Path,
) -> anyhow::Result<()> {
    let work = to.with_extension("work");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let (layer_tree, image) = (work.join("layer"), work.join("image"));
    let blobs = image.join("blobs/sha256");
    for directory in [&layer_tree, &blobs] {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let copy = layer_tree.join("kymo");
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    // Commands that record and report in one run keep the recording there.
    let scratch = layer_tree.join("tmp");
    fs::create_dir(&scratch)?;
    fs::set_permissions(&scratch, fs::Permissions::from_mode(0o1777))?;
    let layer_tar = work.join("layer.tar");
    let mut packed = tar();
    packed.arg("-C").arg(&layer_tree).arg("-cf").arg(&layer_tar).args(["kymo", "tmp"]);
    run(packed)?;

    let layer = Blob::store(&blobs, &fs::read(&layer_tar)?)?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": { "Entrypoint": ["/kymo"], "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask release" }],
    });
    let config = Blob::store(&blobs, &serde_json::to_vec(&config)?)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
        "annotations": {
            "org.opencontainers.image.title": "kymo",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        },
    });
    let manifest = Blob::store(&blobs, &serde_json::to_vec(&manifest)?)?;
    let mut descriptor = manifest.descriptor(MANIFEST);
    // The name under which podman and containerd load it.
    let name = format!("localhost/kymo:{version}");
    descriptor["annotations"] = json!({
        "org.opencontainers.image.ref.name": name,
        "io.containerd.image.name": name,
    });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    fs::write(image.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(image.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;

    let mut packed = tar();
    packed.arg("-C").arg(&image).arg("-cf").arg(to).args(["blobs", "index.json", "oci-layout"]);
    run(packed)?;
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A part of an image, named by its contents.
struct Blob {
    digest: String,
    size: usize,
}

impl Blob {
    fn store(blobs: &Path, bytes: &[u8]) -> anyhow::Result<Blob> {
        let unnamed = blobs.join("unnamed");
        fs::write(&unnamed, bytes).with_context(|| unnamed.display().to_string())?;
        let digest = sha256(&unnamed)?;
        fs::rename(&unnamed, blobs.join(&digest))?;
        Ok(Blob { digest, size: bytes.len() })
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": media_type,
            "digest": format!("sha256:{}", self.digest),
            "size": self.size,
        })
    }
}

/// SHA-256 of a file in lower-case hexadecimal.
pub(super) fn sha256(path: &Path) -> anyhow::Result<String> {
    let output = Command::new("sha256sum").arg(path).output().context("cannot run sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().next() {
        Some(digest) if output.status.success() && digest.len() == 64 => Ok(digest.to_owned()),
        _ => bail!("sha256sum: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
