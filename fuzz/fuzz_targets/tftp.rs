//! A TFTP request, and what the client says while the file is sent.
#![no_main]

use bytes::Bytes;
use ironwright_fuzz::input::Input;
use ironwright_pxe::tftp::transfer::{Request, Step, Transfer};
use libfuzzer_sys::fuzz_target;

/// An Ethernet frame's payload, less the IPv4 and UDP headers.
const MAX_DATAGRAM: usize = 1472;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let size = usize::from(u16::from_be_bytes(input.array()));
    let request = match Request::parse(input.part()) {
        Ok(request) => request,
        Err(refusal) => {
            let _ = refusal.packet();
            return;
        }
    };
    let mut transfer = Transfer::new(&request, Bytes::from(vec![7; size]));
    let mut step = transfer.start();
    loop {
        if let Step::Send(packet) = &step {
            assert!(packet.len() <= MAX_DATAGRAM, "a packet that has to be sent in fragments");
        }
        if step == Step::Done || input.is_empty() {
            return;
        }
        step = match (input.byte(), &step) {
            (0, _) => transfer.silence(),
            // The acknowledgement of what was just sent.
            (1, Step::Send(packet)) if packet[1] == 3 => transfer.answer(&[0, 4, packet[2], packet[3]]),
            (1, _) => transfer.answer(&[0, 4, 0, 0]),
            _ => transfer.answer(input.part()),
        };
    }
});
