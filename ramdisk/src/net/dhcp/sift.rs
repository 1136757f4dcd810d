//! Leaves of a received message only the options that this client reads.
//!
//! Anybody on the network may answer a DISCOVER, and the decoder of dhcproto 0.14 gives up the whole message
//! at the first option it cannot read, and panics on an option 81 of fewer than three bytes. In PID 1 neither may
//! happen over an option that nobody here asked for.

/// BOOTP header and magic cookie (RFC 2131 §3).
const OPTIONS_AT: usize = 240;
const PAD: u8 = 0;
const END: u8 = 255;

/// Whether a value of this length can stand in the option (RFC 2132); options we do not read cannot.
fn fits(code: u8, len: usize) -> bool {
    match code {
        // Subnet mask, lease time, server identifier, T1, T2.
        1 | 51 | 54 | 58 | 59 => len == 4,
        // Routers, name servers.
        3 | 6 => len > 0 && len.is_multiple_of(4),
        // Message type.
        53 => len == 1,
        _ => false,
    }
}

/// The message without all other options. What follows a cut option is dropped.
pub(super) fn sift(message: &[u8]) -> Vec<u8> {
    let (header, mut rest) = message.split_at(OPTIONS_AT.min(message.len()));
    let mut kept = header.to_vec();
    while let [code, after @ ..] = rest {
        rest = match (*code, after) {
            (PAD, after) => after,
            (END, _) | (_, []) => break,
            (code, [len, after @ ..]) => {
                let Some((value, after)) = after.split_at_checked(usize::from(*len)) else { break };
                if fits(code, value.len()) {
                    kept.extend([code, *len]);
                    kept.extend(value);
                }
                after
            }
        };
    }
    kept.push(END);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sifted(options: &[u8]) -> Vec<u8> {
        let mut message = vec![7; OPTIONS_AT];
        message.extend(options);
        sift(&message).split_off(OPTIONS_AT)
    }

    #[test]
    fn only_well_formed_options_that_we_read_are_left() {
        assert_eq!(
            sifted(&[0, 53, 1, 2, 81, 2, 0, 0, 1, 4, 255, 255, 0, 0, 255, 9]),
            [53, 1, 2, 1, 4, 255, 255, 0, 0, 255]
        );
        assert_eq!(sifted(&[3, 3, 10, 0, 0, 54, 4, 10, 0, 0, 1]), [54, 4, 10, 0, 0, 1, 255]);
    }

    #[test]
    fn a_cut_option_ends_the_list() {
        assert_eq!(sifted(&[53, 1, 5, 54, 4, 10, 0]), [53, 1, 5, 255]);
        assert_eq!(sifted(&[53]), [255]);
        assert_eq!(sift(&[]), [255]);
    }
}
