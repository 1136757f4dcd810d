//! `/etc/resolv.conf`, where the C library finds name servers.

use std::{fmt::Write, fs, io, net::Ipv4Addr, path::Path};

/// Writes the name servers to `file`.
pub(super) fn write(file: &Path, servers: &[Ipv4Addr]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text(servers))
}

fn text(servers: &[Ipv4Addr]) -> String {
    servers.iter().fold(String::new(), |mut text, server| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "nameserver {server}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_server() {
        let servers = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(9, 9, 9, 9)];
        assert_eq!(text(&servers), "nameserver 10.0.0.1\nnameserver 9.9.9.9\n");
    }
}
