//! What the kernel command line asks this process to be.

use ironwright_proto::{
    boot_params::{BootParams, BootParamsError},
    kinds::Role,
};

/// What to bring up.
#[derive(Debug, Clone, PartialEq)]
pub enum Boot {
    /// Booted by a site, to provision this machine.
    Ramdisk(Box<BootParams>),
    /// The operating system of a deployed disk (`iw.role=node`): all else is in the disk's seed.
    Node,
}

/// Decides by the command line, as in `/proc/cmdline`. The role comes first, because the command line of a
/// disk image knows neither the machine nor its control.
pub fn boot(line: &str) -> Result<Boot, BootParamsError> {
    let role = line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("iw.role=")).next_back();
    if role == Some(Role::Node.as_str()) {
        return Ok(Boot::Node);
    }
    let params = BootParams::parse(line)?;
    if params.role != Role::Ramdisk {
        return Err(BootParamsError::Malformed {
            key: "iw.role",
            why: format!("`{}` is not a role of a machine", params.role.as_str()),
        });
    }
    Ok(Boot::Ramdisk(Box::new(params)))
}

/// Whether `iw.debug` is given: kernel and library messages come to the console.
pub fn debug(line: &str) -> bool {
    line.split_ascii_whitespace().any(|word| word == "iw.debug" || word == "iw.debug=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE_LINE: &str = "console=ttyS0 iw.control=https://10.0.0.1:8443 iw.debug \
        iw.ca=sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f \
        iw.machine=web-1 iw.mac=52:54:00:12:34:56";

    #[test]
    fn a_site_line_makes_a_ramdisk() {
        assert!(matches!(boot(SITE_LINE), Ok(Boot::Ramdisk(p)) if p.machine_id == "web-1"));
        assert!(debug(SITE_LINE));
        assert!(!debug("iw.debugger"));
    }

    #[test]
    fn a_disk_line_needs_nothing_but_the_role() {
        assert_eq!(boot("root=/dev/ram0 iw.role=node console=ttyS0"), Ok(Boot::Node));
    }

    #[test]
    fn missing_and_malformed_parameters_are_named() {
        assert_eq!(boot("console=ttyS0"), Err(BootParamsError::Missing("iw.control")));
        let site = format!("{SITE_LINE} iw.role=site");
        assert!(matches!(boot(&site), Err(BootParamsError::Malformed { key: "iw.role", .. })));
    }
}
