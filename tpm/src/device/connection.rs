//! The one connection to the TPM: who uses it when, and what is tried again.
//!
//! ```text
//! run(work) ── ok ───────────────────────────────────────────▶ result
//!     ▲  └──── busy: RETRY, YIELDED, TESTING ──▶ wait, doubling ──┐
//!     ├───────────────────────────────────────────────────────────┤  at most MAX_ATTEMPTS
//!     │  └──── full: no object or session slot ─▶ flush leftovers ┘  once
//!     └─────── anything else ────────────────────────────────────▶ error
//! ```
//! `work` starts from nothing loaded and leaves nothing loaded, so it can be repeated as a whole.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tss_esapi::{
    Context, Error as TssError, WrapperErrorKind,
    constants::{
        CapabilityType,
        response_code::Tss2ResponseCodeKind,
        tss::{TPM2_LOADED_SESSION_FIRST, TPM2_TRANSIENT_FIRST},
    },
    handles::TpmHandle,
    structures::CapabilityData,
    tcti_ldr::TctiNameConf,
};

use super::error::{DeviceError, UNUSABLE, kind};

/// Attempts at one piece of work.
const MAX_ATTEMPTS: u32 = 6;
/// Wait before the second attempt; doubled each time, 310 ms in all. A self-test ends well within.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Handles asked for at a time; TPMs hold a handful.
const MAX_LEFTOVERS: u32 = 32;

/// A shared connection; one piece of work at a time has the TPM for itself.
#[derive(Clone)]
pub(super) struct Connection(Arc<Mutex<Context>>);

impl Connection {
    /// Opens the TPM named by `tcti`.
    pub(super) fn open(tcti: &str) -> Result<Self, DeviceError> {
        let name = checked_name(tcti).ok_or_else(|| DeviceError::Tcti(tcti.chars().take(128).collect()))?;
        let context = Context::new(name)
            .map_err(|source| DeviceError::Tpm { doing: "opening the connection", source })?;
        Ok(Self(Arc::new(Mutex::new(context))))
    }

    /// Runs `work`, which must flush whatever it loads, also when it fails.
    pub(super) fn run<T>(
        &self,
        doing: &'static str,
        mut work: impl FnMut(&mut Context) -> Result<T, TssError>,
    ) -> Result<T, DeviceError> {
        // A panic in earlier work cannot leave the context in a state worse than leftovers.
        let mut context = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempt = 1;
        let mut flushed = false;
        loop {
            let source = match work(&mut context) {
                Ok(value) => return Ok(value),
                Err(source) => source,
            };
            match after_failure(kind(source), attempt, flushed) {
                Next::Wait(time) => thread::sleep(time),
                Next::FlushLeftovers => {
                    flushed = true;
                    flush_leftovers(&mut context)
                        .map_err(|source| DeviceError::Tpm { doing: "flushing leftovers", source })?;
                }
                Next::Fail => return Err(DeviceError::Tpm { doing, source }),
            }
            attempt += 1;
        }
    }
}

/// Only forms that mean what they say: libtss2 3.2 and tss-esapi 7 read `swtpm:path=…`, and a bare
/// `swtpm` or `device`, as a default address, where another TPM may listen.
fn checked_name(tcti: &str) -> Option<TctiNameConf> {
    let is_complete = match tcti.split_once(':')? {
        ("device", path) => path.starts_with('/'),
        ("swtpm", address) => {
            let (host, port) = address.strip_prefix("host=")?.split_once(",port=")?;
            !host.is_empty() && port.parse::<u16>().is_ok()
        }
        _ => false,
    };
    if is_complete { TctiNameConf::from_str(tcti).ok() } else { None }
}

/// What to do after a failed attempt.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait(Duration),
    FlushLeftovers,
    Fail,
}

fn after_failure(kind: Option<Tss2ResponseCodeKind>, attempt: u32, flushed: bool) -> Next {
    use Tss2ResponseCodeKind as Kind;
    if attempt >= MAX_ATTEMPTS {
        return Next::Fail;
    }
    match kind {
        Some(Kind::Retry | Kind::Yielded | Kind::Testing) => Next::Wait(FIRST_WAIT * 2u32.pow(attempt - 1)),
        Some(Kind::ObjectMemory | Kind::SessionMemory | Kind::Memory | Kind::SessionHandles) if !flushed => {
            Next::FlushLeftovers
        }
        _ => Next::Fail,
    }
}

/// Flushes every object and session that this connection sees. Through a resource manager that is only our
/// own; without one, the slots are filled by programs that died, since we are the only one connected.
fn flush_leftovers(context: &mut Context) -> Result<(), TssError> {
    for first in [TPM2_TRANSIENT_FIRST, TPM2_LOADED_SESSION_FIRST] {
        for handle in loaded(context, first)? {
            let object = context.tr_from_tpm_public(handle)?;
            match context.flush_context(object) {
                // It is flushed; only the library's list of handles did not expect that of a policy session.
                Err(TssError::WrapperError(WrapperErrorKind::InvalidHandleState)) => {}
                flushed => flushed?,
            }
        }
    }
    Ok(())
}

/// Loaded objects or sessions, by the first handle of their range.
fn loaded(context: &mut Context, first: u32) -> Result<Vec<TpmHandle>, TssError> {
    let (found, _) = context.get_capability(CapabilityType::Handles, first, MAX_LEFTOVERS)?;
    let CapabilityData::Handles(handles) = found else { return Err(UNUSABLE) };
    Ok(handles.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t20_a_name_that_libtss2_would_misread_is_refused() {
        for tcti in [
            "swtpm:path=/run/tpm.sock",
            "swtpm",
            "swtpm:",
            "swtpm:port=2321",
            "device",
            "device:",
            "device:tpm0",
            "cmd:nc",
            "mssim:host=h,port=1",
            "tabrmd",
            "",
            "swtpm:host=,port=1",
            "swtpm:host=h,port=99999",
        ] {
            assert!(matches!(Connection::open(tcti), Err(DeviceError::Tcti(name)) if name == tcti), "{tcti}");
        }
        assert!(checked_name("device:/dev/tpmrm0").is_some());
        assert!(checked_name("swtpm:host=127.0.0.1,port=2321").is_some());
    }

    #[test]
    fn t25_a_busy_tpm_is_asked_again_a_bounded_number_of_times() {
        use Tss2ResponseCodeKind as Kind;
        for busy in [Kind::Retry, Kind::Yielded, Kind::Testing] {
            let waits: Vec<u64> = (1..MAX_ATTEMPTS)
                .map(|attempt| match after_failure(Some(busy), attempt, false) {
                    Next::Wait(time) => u64::try_from(time.as_millis()).unwrap(),
                    other => panic!("{busy:?}: {other:?}"),
                })
                .collect();
            assert_eq!(waits, [10, 20, 40, 80, 160]);
            assert_eq!(after_failure(Some(busy), MAX_ATTEMPTS, false), Next::Fail);
        }
        assert_eq!(after_failure(Some(Kind::Integrity), 1, false), Next::Fail);
        assert_eq!(after_failure(None, 1, false), Next::Fail);
    }

    #[test]
    fn t21_full_slots_are_flushed_once() {
        use Tss2ResponseCodeKind as Kind;
        for full in [Kind::ObjectMemory, Kind::SessionMemory] {
            assert_eq!(after_failure(Some(full), 1, false), Next::FlushLeftovers);
            assert_eq!(after_failure(Some(full), 2, true), Next::Fail);
        }
    }
}
