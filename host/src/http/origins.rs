//! The setting `origins`: which web pages may call the host. `rollcall-api` enforces it.

use crate::config::Value;

pub use rollcall_api::origins::Origins;
pub(crate) use rollcall_api::origins::allow_origin;

impl Value for Origins {
    const REPEATS: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        Self::from_text(text)
    }

    fn parse_all(texts: &[String]) -> Result<Self, String> {
        match texts {
            [only] if only == Self::NONE => Ok(Self::default()),
            _ => Self::from_list(texts.iter().map(String::as_str)),
        }
    }

    fn from_toml(value: &toml::Value) -> Result<Self, String> {
        let list = value.as_array().ok_or_else(|| "is not a list of origins".to_owned())?;
        let text = |item: &'_ toml::Value| item.as_str().map(str::to_owned);
        let texts: Option<Vec<String>> = list.iter().map(text).collect();
        let texts = texts.ok_or_else(|| "has an item that is not a string".to_owned())?;
        Self::from_list(texts.iter().map(String::as_str))
    }

    fn to_toml(&self) -> toml::Value {
        toml::Value::Array(self.iter().map(|origin| toml::Value::String(origin.to_owned())).collect())
    }
}
