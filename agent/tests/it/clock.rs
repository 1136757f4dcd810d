//! Control's signed time.

use ironwright_agent::{
    ConnectError,
    clock::{ClockError, fetch},
};

use crate::{
    authority::{Authority, EXPIRED},
    control::{Control, TimeAnswer},
};

async fn ask(control: &Control, answer: TimeAnswer) -> Result<i64, ClockError> {
    *control.shared.time.lock().unwrap() = answer;
    fetch(&control.api_url, control.shared.authority.pin()).await
}

#[tokio::test]
async fn a_machine_with_any_clock_gets_the_time() {
    // To a machine whose clock is wrong, a good certificate looks like this one.
    let control = Control::start_with(EXPIRED).await;
    assert_eq!(ask(&control, TimeAnswer::Good(1_800_000_000_123)).await.unwrap(), 1_800_000_000_123);
}

#[tokio::test]
async fn only_controls_fresh_signature_is_believed() {
    let control = Control::start().await;
    assert!(matches!(ask(&control, TimeAnswer::Replayed).await, Err(ClockError::Stale)));
    assert!(matches!(ask(&control, TimeAnswer::ByNode).await, Err(ClockError::Chain(_))));
    assert!(matches!(ask(&control, TimeAnswer::Forged).await, Err(ClockError::Envelope(_))));
    let elsewhere = fetch(&control.api_url, Authority::new().pin()).await;
    assert!(matches!(elsewhere, Err(ClockError::Connect(ConnectError::WrongCa { .. }))));
}
