//! Name of the authority that issued a certificate, for error messages. The certificate is not
//! trusted, so anything unexpected is ignored.

use rustls::pki_types::CertificateDer;

/// Longest name that is shown, in characters.
const NAME_CHARS_MAX: usize = 100;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// Encoded object ids of the common name and the organization (X.520).
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// Common name of the issuer, or its organization.
pub(crate) fn issuer_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (SEQUENCE, certificate, _) = element(certificate)? else {
        return None;
    };
    let (SEQUENCE, fields, _) = element(certificate)? else {
        return None;
    };
    // Version (optional), serial number, signature algorithm, issuer.
    let (tag, _, rest) = element(fields)?;
    let rest = if tag == VERSION {
        element(rest)?.2
    } else {
        rest
    };
    let (_algorithm, _, rest) = element(rest)?;
    let (SEQUENCE, mut names, _) = element(rest)? else {
        return None;
    };
    let mut found = None;
    while let Some((SET, attributes, rest)) = element(names) {
        names = rest;
        let Some((SEQUENCE, attribute, _)) = element(attributes) else {
            continue;
        };
        let Some((OBJECT_ID, id, value)) = element(attribute) else {
            continue;
        };
        let Some((_, text, _)) = element(value) else {
            continue;
        };
        if id == COMMON_NAME || id == ORGANIZATION && found.is_none() {
            found = Some(shown(text));
        }
    }
    found
}

fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.chars().filter(|c| !c.is_control());
    text.take(NAME_CHARS_MAX).collect()
}

/// First element of DER: its tag, its content and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let digits = length - 0x80;
        if digits > 4 {
            return None;
        }
        length = 0;
        for digit in rest.get(..digits)? {
            length = length << 8 | usize::from(*digit);
        }
        rest = rest.get(digits..)?;
    }
    Some((*tag, rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn prov_2_the_issuer_of_a_certificate_is_found() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../connector-process/tests/fixtures/localhost.pem"
        );
        let certificate = CertificateDer::from_pem_file(file).unwrap();
        let found = issuer_of(&certificate).unwrap();
        assert!(!found.is_empty() && found.is_ascii(), "{found}");
        for length in 0..certificate.len() {
            let cut = CertificateDer::from(certificate[..length].to_vec());
            assert_eq!(issuer_of(&cut), None, "{length}");
        }
    }
}
