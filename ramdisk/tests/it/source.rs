//! Fetching an image over connections that break.

use std::{io::Read, time::Duration};

use ironwright_ramdisk::exec::source::{
    SourceError, channel, fetch,
    resume::{GivenUp, HeadError, Patience},
    url::HttpUrl,
};

use crate::server::{Act, Server};

const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    read: Duration::from_millis(300),
    absence: Duration::from_secs(10),
    breaks: 10,
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(20),
};

/// Bytes that differ wherever a wrong offset would look.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from((i / 251 + i) % 256).unwrap()).collect()
}

async fn read(
    url: &str,
    total: usize,
    patience: Patience,
) -> (Result<(), SourceError>, std::io::Result<Vec<u8>>) {
    let (sink, mut reader) = channel();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    let fetched = fetch(&HttpUrl::parse(url).unwrap(), total as u64, patience, sink).await;
    (fetched, reading.await.unwrap())
}

#[tokio::test]
async fn a_transfer_goes_on_where_each_connection_broke() {
    let image = content(3_000_000);
    let acts = [Act::Cut(1_000_000), Act::Refuse, Act::Stall(500_000), Act::Status(503), Act::Serve];
    let server = Server::start(image.clone(), &acts).await;
    let (fetched, bytes) = read(&server.url(), image.len(), PATIENCE).await;
    fetched.unwrap();
    assert!(bytes.unwrap() == image);
    let one_and_a_half = Some(1_500_000);
    assert_eq!(server.ranges(), [None, Some(1_000_000), Some(1_000_000), one_and_a_half, one_and_a_half]);
}

#[tokio::test]
async fn a_server_that_ignores_ranges_costs_time_but_no_bytes() {
    let image = content(400_000);
    let server = Server::start(image.clone(), &[Act::Cut(123_457), Act::IgnoreRange]).await;
    let (fetched, bytes) = read(&server.url(), image.len(), PATIENCE).await;
    fetched.unwrap();
    assert!(bytes.unwrap() == image);
}

#[tokio::test]
async fn a_source_that_stays_away_is_an_error_never_a_short_image() {
    let image = content(1000);
    let server = Server::start(image.clone(), &[Act::Cut(400), Act::Status(404)]).await;
    let (fetched, bytes) = read(&server.url(), image.len(), PATIENCE).await;
    assert!(
        matches!(fetched, Err(SourceError::Refused { source: HeadError::Refused(status), .. }) if status == 404)
    );
    assert!(bytes.is_err());

    let refusals = [Act::Refuse; 20];
    let server = Server::start(image.clone(), &[&[Act::Cut(400)], &refusals[..]].concat()).await;
    let (fetched, bytes) = read(&server.url(), image.len(), PATIENCE).await;
    assert!(matches!(
        fetched,
        Err(SourceError::GivenUp { offset: 400, total: 1000, source: GivenUp::Flaky { breaks: 11, .. }, .. })
    ));
    assert!(bytes.is_err());
}

#[tokio::test]
async fn another_size_than_control_knows_is_refused_before_any_byte() {
    let server = Server::start(content(1001), &[]).await;
    let (fetched, bytes) = read(&server.url(), 1000, PATIENCE).await;
    let other_size = HeadError::OtherSize { found: 1001, expected: 1000 };
    assert!(matches!(fetched, Err(SourceError::Refused { source, .. }) if source == other_size));
    assert!(bytes.is_err());
}

#[tokio::test]
async fn a_fetch_that_is_stopped_is_an_error_for_the_reader() {
    let server = Server::start(content(1000), &[Act::Stall(400)]).await;
    let url = HttpUrl::parse(&server.url()).unwrap();
    let (sink, mut reader) = channel();
    let fetching = tokio::spawn(async move { fetch(&url, 1000, Patience::default(), sink).await });
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = [0; 400];
        reader.read_exact(&mut bytes).unwrap();
        fetching.abort();
        reader.read(&mut bytes)
    });
    let error = reading.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
