//! Keys that sign and verify tokens, parsed from text.
//!
//! A key fixes its algorithm; a token never chooses one. So a token that claims to be unsigned, or that was signed by
//! HMAC with the text of a public key, matches no key. A bad key is refused here, at start; otherwise it could panic or
//! silently refuse every token later.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};

/// RFC 7518 requires an HMAC-SHA-256 secret as long as the hash: 256 bits.
pub const MIN_SECRET_BYTES: usize = 32;

/// RFC 7518 requires 2,048 bits or more; the library supports up to 4,096.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// The size of every Ed25519 public key.
const ED25519_BYTES: usize = 32;

/// Why a text is not a usable key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret is too short.
    #[error("the secret has {0} bytes; HS256 needs at least {MIN_SECRET_BYTES}")]
    ShortSecret(usize),
    /// JSON, but not a key set.
    #[error("it begins like JSON but is not a JSON Web Key Set: {0}")]
    NotAKeySet(String),
    /// A key set without a usable key.
    #[error("the key set has no key for HS256, RS256 or EdDSA signatures")]
    NoUsableKey,
    /// A PEM of another kind.
    #[error("the PEM is not an RSA or Ed25519 key")]
    UnknownPem,
    /// A private key where a public one belongs.
    #[error("the PEM is a private key; verifying tokens needs the public one")]
    PrivateKey,
    /// A public key, or a key set, where a private key belongs.
    #[error("signing needs a secret or a private key in PEM")]
    NotASigningKey,
    /// An RSA key of the wrong length.
    #[error("the RSA key has {0} bits; it needs between 2048 and 4096")]
    RsaLength(usize),
    /// The library refuses the key.
    #[error("the key is damaged")]
    Damaged,
    /// The library failed to sign.
    #[error("signing failed: {0}")]
    Signing(String),
}

/// Keys that verify tokens. Their `Debug` hides them.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Key>);

/// One key with its only algorithm.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Keys {
    /// Parses keys: a JSON Web Key Set, a public key in PEM (RSA for RS256, Ed25519 for EdDSA), or else a secret for
    /// HS256 of at least [`MIN_SECRET_BYTES`] bytes. Surrounding whitespace is ignored.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.starts_with('{') {
            return Self::from_jwks(text);
        }
        if text.starts_with("-----BEGIN") {
            return Ok(Self(vec![from_pem(text)?]));
        }
        Ok(Self(vec![from_secret(text.as_bytes(), None)?]))
    }

    /// Parses a key set. Keys for other purposes or algorithms are ignored; a damaged key is an error.
    fn from_jwks(text: &str) -> Result<Self, KeyError> {
        let set: JwkSet = serde_json::from_str(text).map_err(|error| KeyError::NotAKeySet(error.to_string()))?;
        let keys: Vec<Key> = set.keys.iter().filter_map(|jwk| from_jwk(jwk).transpose()).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(KeyError::NoUsableKey) } else { Ok(Self(keys)) }
    }

    /// The keys for a token with this algorithm and key id. A key without an id matches any.
    pub(crate) fn candidates<'a>(&'a self, algorithm: &'a str, id: Option<&'a str>) -> impl Iterator<Item = &'a Key> {
        let fits = move |key: &&Key| match (id, key.id.as_deref()) {
            (Some(wanted), Some(id)) => wanted == id,
            _ => true,
        };
        self.0.iter().filter(move |key| key.algorithm_name() == algorithm).filter(fits)
    }
}

impl Key {
    /// The algorithm's name in a token's header.
    fn algorithm_name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::HS256 => "HS256",
            Algorithm::RS256 => "RS256",
            Algorithm::EdDSA => "EdDSA",
            // Keys have no other algorithm; the empty name matches no token.
            _ => "",
        }
    }

    /// Whether this key made the signature.
    pub(crate) fn signed(&self, message: &str, signature: &str) -> bool {
        matches!(jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.key, self.algorithm), Ok(true))
    }

    /// Refuses a key that the library could not use.
    fn checked(self) -> Result<Self, KeyError> {
        match (self.algorithm, self.key.kind()) {
            (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) if secret.len() < MIN_SECRET_BYTES => {
                return Err(KeyError::ShortSecret(secret.len()));
            }
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, .. }) if !RSA_BITS.contains(&bits(n)) => {
                return Err(KeyError::RsaLength(bits(n)));
            }
            // The library slices without a length check: a shorter key would panic at the first token.
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) if point.len() != ED25519_BYTES => {
                return Err(KeyError::Damaged);
            }
            _ => {}
        }
        // The signature is never valid; what matters is that the library can try.
        let tried = jsonwebtoken::crypto::verify("", b"", &self.key, self.algorithm);
        if tried.is_ok() { Ok(self) } else { Err(KeyError::Damaged) }
    }
}

/// A key that signs tokens. Its `Debug` hides it.
#[derive(Debug, Clone)]
pub struct SigningKey {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
}

impl SigningKey {
    /// Parses a key: a private key in PEM (PKCS#8; RSA or Ed25519), or else a secret for HS256.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.starts_with('{') || text.starts_with("-----BEGIN") && !text.contains("PRIVATE KEY-----") {
            return Err(KeyError::NotASigningKey);
        }
        if text.starts_with("-----BEGIN") {
            let rsa = EncodingKey::from_rsa_pem(text.as_bytes()).map(|key| (Algorithm::RS256, key));
            let any = rsa.or_else(|_| EncodingKey::from_ed_pem(text.as_bytes()).map(|key| (Algorithm::EdDSA, key)));
            let (algorithm, key) = any.map_err(|_| KeyError::UnknownPem)?;
            return Ok(Self { algorithm, key });
        }
        if text.len() < MIN_SECRET_BYTES {
            return Err(KeyError::ShortSecret(text.len()));
        }
        Ok(Self { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(text.as_bytes()) })
    }
}

fn from_secret(secret: &[u8], id: Option<String>) -> Result<Key, KeyError> {
    Key { id, algorithm: Algorithm::HS256, key: DecodingKey::from_secret(secret) }.checked()
}

fn from_pem(text: &str) -> Result<Key, KeyError> {
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::PrivateKey);
    }
    if let Ok(key) = DecodingKey::from_ed_pem(text.as_bytes()) {
        return Key { id: None, algorithm: Algorithm::EdDSA, key }.checked();
    }
    let der = DecodingKey::from_rsa_pem(text.as_bytes()).map_err(|_| KeyError::UnknownPem)?;
    // By way of a JWK the key is taken apart into modulus and exponent, so that its length can be checked.
    let parts = Jwk::from_decoding_key(&der, Some(Algorithm::RS256)).map_err(|_| KeyError::Damaged)?;
    let key = DecodingKey::from_jwk(&parts).map_err(|_| KeyError::Damaged)?;
    Key { id: None, algorithm: Algorithm::RS256, key }.checked()
}

/// The key, or none if it is for something else.
fn from_jwk(jwk: &Jwk) -> Result<Option<Key>, KeyError> {
    let algorithm = match jwk.algorithm {
        AlgorithmParameters::OctetKey(_) => Algorithm::HS256,
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::OctetKeyPair(_) => Algorithm::EdDSA,
        _ => return Ok(None),
    };
    let common = &jwk.common;
    let other_algorithm = common.key_algorithm.is_some_and(|named| named != KeyAlgorithm::from(algorithm));
    let other_use = common.public_key_use.as_ref().is_some_and(|named| *named != PublicKeyUse::Signature);
    let other_work = common.key_operations.as_ref().is_some_and(|named| !named.contains(&KeyOperations::Verify));
    if other_algorithm || other_use || other_work {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| KeyError::Damaged)?;
    Key { id: common.key_id.clone(), algorithm, key }.checked().map(Some)
}

/// The length of a big-endian number, leading zeros not counted.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let first = number.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    (number.len() - zeros) * 8 - first
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
    pub(crate) const RSA_PRIVATE: &str = include_str!("../tests/keys/rsa-private.pem");
    pub(crate) const RSA_PUBLIC: &str = include_str!("../tests/keys/rsa-public.pem");
    pub(crate) const ED_PRIVATE: &str = include_str!("../tests/keys/ed25519-private.pem");
    pub(crate) const ED_PUBLIC: &str = include_str!("../tests/keys/ed25519-public.pem");

    /// A key set of our three test keys, with ids, and of two keys that are not for us.
    pub(crate) fn key_set() -> String {
        let jwk = |key: DecodingKey, algorithm, id: &str| {
            let mut jwk = Jwk::from_decoding_key(&key, Some(algorithm)).unwrap();
            jwk.common.key_id = Some(id.to_owned());
            serde_json::to_value(jwk).unwrap()
        };
        let rsa = DecodingKey::from_rsa_pem(RSA_PUBLIC.as_bytes()).unwrap();
        let ed = DecodingKey::from_ed_pem(ED_PUBLIC.as_bytes()).unwrap();
        let keys = [
            jwk(rsa, Algorithm::RS256, "rsa"),
            jwk(ed, Algorithm::EdDSA, "ed"),
            jwk(DecodingKey::from_secret(SECRET.as_bytes()), Algorithm::HS256, "hmac"),
            json!({"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"}),
            json!({"kty": "made-up"}),
        ];
        json!({ "keys": keys }).to_string()
    }

    fn error(text: &str) -> KeyError {
        Keys::from_text(text).unwrap_err()
    }

    #[test]
    fn key_type_is_detected_from_text() {
        for (text, name) in [(SECRET, "HS256"), (RSA_PUBLIC, "RS256"), (ED_PUBLIC, "EdDSA")] {
            let keys = Keys::from_text(&format!("\n {text} \n")).unwrap();
            assert_eq!(keys.0.iter().map(Key::algorithm_name).collect::<Vec<_>>(), [name]);
        }
        assert_eq!(Keys::from_text(&key_set()).unwrap().0.len(), 3);
    }

    #[test]
    fn short_secret_is_refused_with_its_length() {
        assert_eq!(error(&format!("  {}\n", "x".repeat(31))), KeyError::ShortSecret(31));
        assert_eq!(error(""), KeyError::ShortSecret(0));
        assert_eq!(error(r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}"#), KeyError::ShortSecret(5));
        assert_eq!(SigningKey::from_text("short").unwrap_err(), KeyError::ShortSecret(5));
    }

    #[test]
    fn unusable_pem_is_refused() {
        assert_eq!(error(RSA_PRIVATE), KeyError::PrivateKey);
        assert_eq!(error(ED_PRIVATE), KeyError::PrivateKey);
        assert_eq!(error(include_str!("../tests/keys/rsa-small-public.pem")), KeyError::RsaLength(1024));
        assert_eq!(error(include_str!("../tests/keys/ec-public.pem")), KeyError::UnknownPem);
        assert_eq!(error("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"), KeyError::UnknownPem);
    }

    #[test]
    fn unusable_key_set_is_refused() {
        assert!(matches!(error("{}"), KeyError::NotAKeySet(_)));
        assert!(matches!(error("{\"keys\":"), KeyError::NotAKeySet(_)));
        assert_eq!(error(r#"{"keys":[]}"#), KeyError::NoUsableKey);
        assert_eq!(error(r#"{"keys":[{"kty":"oct","k":"AAAA","key_ops":["sign"]}]}"#), KeyError::NoUsableKey);
        assert_eq!(error(r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}"#), KeyError::Damaged);
        assert_eq!(error(r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#), KeyError::RsaLength(17));
    }

    #[test]
    fn public_keys_cannot_sign() {
        for text in [RSA_PUBLIC, ED_PUBLIC, &key_set()] {
            assert_eq!(SigningKey::from_text(text).unwrap_err(), KeyError::NotASigningKey);
        }
    }

    #[test]
    fn key_id_matches_same_id_or_none() {
        let keys = Keys::from_text(&key_set()).unwrap();
        let count = |algorithm, id| keys.candidates(algorithm, id).count();
        assert_eq!((count("RS256", Some("rsa")), count("RS256", None)), (1, 1));
        assert_eq!((count("RS256", Some("ed")), count("none", None), count("", None)), (0, 0, 0));
        let lone = Keys::from_text(SECRET).unwrap();
        assert_eq!(lone.candidates("HS256", Some("any")).count(), 1);
    }

    #[test]
    fn debug_output_hides_keys() {
        let shown = format!("{:?} {:?}", Keys::from_text(SECRET).unwrap(), SigningKey::from_text(SECRET).unwrap());
        assert!(!shown.contains(SECRET) && !shown.contains("48, 49"));
    }

    proptest! {
        #[test]
        fn parsing_keys_never_panics(text in any::<String>(), x in "[A-Za-z0-9_-]{0,50}") {
            let _ = (Keys::from_text(&text), SigningKey::from_text(&text));
            let pem = format!("-----BEGIN PUBLIC KEY-----\n{x}\n-----END PUBLIC KEY-----");
            let _ = Keys::from_text(&pem);
            for key in [json!({"kty": "OKP", "crv": "Ed25519", "x": x}), json!({"kty": "RSA", "n": x, "e": x})] {
                let _ = Keys::from_text(&json!({ "keys": [key] }).to_string());
            }
        }
    }
}
