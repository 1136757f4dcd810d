//! Images by URL and by upload.

use std::{collections::HashMap, io::Write};

use http::{Method, StatusCode};
use ironwright_proto::api::{Image, ImageState};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout},
};

use crate::{
    client::{connect, tls},
    rig::{DEADLINE, Rig, disk},
    web::Web,
};

/// A disk whose bytes are not all alike, so that a shifted one shows.
fn raw(len: usize) -> Vec<u8> {
    disk((0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

async fn add(rig: &Rig, body: Value) -> Image {
    let image: Image = rig.api.create("/v1/images", &body).await;
    settled(rig, image.name.as_str()).await
}

/// Waits until control has made up its mind about an image.
async fn settled(rig: &Rig, name: &str) -> Image {
    let end = Instant::now() + DEADLINE;
    loop {
        let image: Image = rig.api.read(&format!("/v1/images/{name}")).await;
        if image.state != ImageState::Fetching {
            return image;
        }
        assert!(Instant::now() < end, "image {name} is still being fetched");
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn code(image: &Image) -> &str {
    assert_eq!(image.state, ImageState::Failed);
    image.error.as_ref().map_or("", |error| error.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_images_are_fetched_whole_and_measured() {
    let rig = Rig::start().await;
    let plain = raw(3_000_000);
    let packed = gzip(&plain);
    let web = Web::serve(HashMap::from([("/x.raw", plain.clone()), ("/x.img", packed.clone())])).await;

    let image = add(&rig, json!({"name": "plain", "url": web.url("/to/x.raw?X-Sig=abc=&a=1%2F2")})).await;
    assert_eq!(
        (image.state, image.size_bytes, image.raw_size_bytes),
        (ImageState::Ready, 3_000_000, 3_000_000)
    );
    assert_eq!((image.digest.unwrap().to_string(), image.format.as_deref()), (digest(&plain), Some("raw")));

    let body = json!({"name": "packed", "url": web.url("/x.img?X-Sig=abc="), "digest": digest(&packed)});
    let image = add(&rig, body).await;
    assert_eq!((image.state, image.raw_size_bytes), (ImageState::Ready, 3_000_000));
    assert_eq!(image.size_bytes, packed.len() as u64);
    assert_eq!(image.format.as_deref(), Some("gzip"), "told by content, not by name");

    let targets = ["/to/x.raw?X-Sig=abc=&a=1%2F2", "/x.raw", "/x.img?X-Sig=abc="];
    assert_eq!(web.asked(), targets);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_cannot_be_had_say_why() {
    let rig = Rig::start().await;
    let web = Web::serve(HashMap::from([
        ("/x.raw", raw(1000)),
        ("/page", b"<!DOCTYPE html><html>".to_vec()),
        ("/cut.gz", gzip(&raw(100_000))[..500].to_vec()),
        ("/loop", Vec::new()),
        ("/text", b"hello world\n".to_vec()),
    ]))
    .await;
    // A port that was free a moment ago; nobody listens there.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let wrong = digest(b"other bytes");
    let loops = format!("/to{}/x.raw", "/to".repeat(6));
    for (name, url, expected_digest, wanted) in [
        ("wrong", web.url("/x.raw"), Some(wrong), "digest_mismatch"),
        ("gone", format!("http://{gone}/x.raw"), None, "source_unreachable"),
        // By a CA that this system does not trust.
        ("untrusted", format!("https://{}/x.raw", rig.api.address), None, "source_unreachable"),
        ("missing", web.url("/none"), None, "source_unreachable"),
        ("metadata", "http://169.254.169.254/latest/meta-data".to_owned(), None, "source_unreachable"),
        ("loops", web.url(&loops), None, "source_unreachable"),
        ("page", web.url("/page"), None, "unknown_format"),
        ("empty", web.url("/loop"), None, "unknown_format"),
        ("text", web.url("/text"), None, "bad_partition_table"),
        ("cut", web.url("/cut.gz"), None, "image_damaged"),
    ] {
        let image = add(&rig, json!({"name": name, "url": url, "digest": expected_digest})).await;
        assert_eq!(code(&image), wanted, "{name}: {:?}", image.error);
    }
    let blobs = std::fs::read_dir(rig.dir.path().join("control/blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 0, "nothing of them is kept");
    let text: Image = rig.api.read("/v1/images/text").await;
    assert!(text.error.unwrap().message.starts_with("the image has no partition table"));

    let refused: Image = rig.api.read("/v1/images/metadata").await;
    assert!(refused.error.unwrap().message.contains("link-local"));

    // A failed image may be registered again.
    let image = add(&rig, json!({"name": "wrong", "url": web.url("/x.raw")})).await;
    assert_eq!(image.state, ImageState::Ready);

    for (body, field) in [
        (json!({"name": "x", "url": "ftp://a/b"}), "url"),
        (json!({"name": "x", "url": "http://user:secret@a/b"}), "url"),
        (json!({"name": "x", "url": "http://a/b", "digest": "md5:00"}), "digest"),
    ] {
        let (status, answer) = rig.api.post("/v1/images", &body).await;
        assert_eq!((status, &answer["error"]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)));
        assert!(!answer.to_string().contains("secret"));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_uploaded() {
    let rig = Rig::start().await;
    let bytes = raw(2_500_000);
    let path = format!("/v1/images/mine/bytes?digest={}", digest(&bytes));
    let (status, answer) = rig.api.bytes(Method::PUT, &path, bytes.clone()).await;
    assert_eq!((status, &answer["state"]), (StatusCode::OK, &json!("ready")), "{answer}");
    assert_eq!((&answer["source"], &answer["digest"]), (&json!("upload"), &json!(digest(&bytes))));

    let (status, answer) = rig.api.bytes(Method::PUT, "/v1/images/mine/bytes", bytes.clone()).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::CONFLICT, &json!("image_exists")));

    let path = format!("/v1/images/other/bytes?digest={}", digest(b"other bytes"));
    let (status, answer) = rig.api.bytes(Method::PUT, &path, bytes).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["error"]["code"], "digest_mismatch");
    assert_eq!(code(&rig.api.read("/v1/images/other").await), "digest_mismatch");

    // Known after the first bytes; the client is still sending when it gets the answer.
    let qcow2 = [b"QFI\xfb\0\0\0\x03".to_vec(), raw(30_000_000)].concat();
    let (status, answer) = rig.api.bytes(Method::PUT, "/v1/images/third/bytes", qcow2).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["error"]["code"], "unknown_format");

    let (status, answer) = rig.api.bytes(Method::PUT, "/v1/images/a_b/bytes", "x").await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("name")));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_removed_images_go_with_the_last_of_them() {
    let rig = Rig::start().await;
    let blobs = rig.dir.path().join("control/blobs");
    let count = |folder: &str| std::fs::read_dir(blobs.join(folder)).unwrap().count();
    for path in ["/v1/images/one/bytes", "/v1/images/two/bytes"] {
        let (status, answer) = rig.api.bytes(Method::PUT, path, raw(1_000)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    assert_eq!(count("sha256"), 1, "equal bytes are kept once");
    let (status, answer) = rig.api.bytes(Method::DELETE, "/v1/images/one", "").await;
    assert_eq!((status, &answer["name"]), (StatusCode::OK, &json!("one")));
    assert_eq!(count("sha256"), 1, "the other image has them");
    let (status, _) = rig.api.bytes(Method::DELETE, "/v1/images/two", "").await;
    assert_eq!((status, count("sha256")), (StatusCode::OK, 0));
    let (status, answer) = rig.api.bytes(Method::DELETE, "/v1/images/two", "").await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::NOT_FOUND, &json!("unknown_image")));
    let (status, answer) = rig.api.bytes(Method::PUT, "/v1/images/two/bytes", raw(2_000)).await;
    assert_eq!(
        (status, &answer["digest"]),
        (StatusCode::OK, &json!(digest(&raw(2_000)))),
        "the name is free"
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_cannot_fit_is_refused_before_it_is_sent() {
    let rig = Rig::start().await;
    let mut stream = connect(rig.api.address, tls(&rig.ca(), None, b"http/1.1")).await.unwrap();
    // One exbibyte, of which the first bytes come.
    let head = format!(
        "PUT /v1/images/huge/bytes HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-length: 1152921504606846976\r\n\r\nabc",
        rig.api.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("insufficient_storage") {
        let read = timeout(DEADLINE, stream.read_buf(&mut answer)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 507 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(code(&rig.api.read("/v1/images/huge").await), "insufficient_storage");
    let left = std::fs::read_dir(rig.dir.path().join("control/blobs/tmp")).unwrap().count();
    assert_eq!(left, 0);
    drop(stream);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_by_file_url_come_from_the_image_folder_only() {
    let rig = Rig::start_with_image_folder().await;
    let folder = rig.dir.path().join("images").canonicalize().unwrap();
    let key = rig.dir.path().join("control/ca.key").canonicalize().unwrap();
    let url = |path: &std::path::Path| format!("file://{}", path.display());
    std::fs::write(folder.join("x.raw"), raw(1000)).unwrap();
    std::os::unix::fs::symlink(&key, folder.join("key.raw")).unwrap();

    let image = add(&rig, json!({"name": "file", "url": url(&folder.join("x.raw"))})).await;
    assert_eq!((image.state, image.size_bytes), (ImageState::Ready, 1000));
    for (name, path, wanted) in [
        ("missing", folder.join("none"), "source_unreachable"),
        ("folder", folder.join("."), "file_refused"),
        ("link", folder.join("key.raw"), "file_refused"),
        ("key", key, "file_refused"),
        ("device", "/dev/zero".into(), "file_refused"),
        ("dots", folder.join("../control/ca.key"), "file_refused"),
    ] {
        let (status, answer) = rig.api.post("/v1/images", &json!({"name": name, "url": url(&path)})).await;
        if status == StatusCode::ACCEPTED {
            assert_eq!(code(&settled(&rig, name).await), wanted, "{name}");
        } else {
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!(answer["error"]["code"], wanted, "{name}: {answer}");
        }
    }
    let blobs = std::fs::read_dir(rig.dir.path().join("control/blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 1, "only the image");
    rig.stop().await;

    let rig = Rig::start().await;
    let (status, answer) =
        rig.api.post("/v1/images", &json!({"name": "x", "url": "file:///etc/hostname"})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["error"]["code"], "file_refused");
    assert!(answer["error"]["message"].as_str().unwrap().contains("image_folder"), "{answer}");
    assert_eq!(rig.api.get("/v1/images").await.1, json!([]));
    rig.stop().await;
}
