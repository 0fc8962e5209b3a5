//! Products: maps source packages to banners (`rules/products.toml`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{AdvisoryImportError, check_name};
use bannerwall_inspect::rules::{limits, text_source, toml_nesting};

/// The products that are part of the program.
const SHIPPED: &str = include_str!("../shipped/products.toml");

/// Packages and their banners.
#[derive(Debug, Clone)]
pub struct ProductMap(Vec<ProductEntry>);

/// One product.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProductEntry {
    /// Source packages whose advisories are about it.
    pub(super) packages: Vec<String>,
    /// Its names in the National Vulnerability Database: `openbsd:openssh`.
    #[serde(default)]
    pub(super) cpe: Vec<String>,
    /// The protocol of its banners, by its name in rules.
    pub(super) protocol: String,
    /// The sender of its banners, by its name in rules.
    #[serde(default)]
    pub(super) from: Option<String>,
    /// Patterns of its rules, by field.
    #[serde(rename = "match")]
    pub(super) asked: BTreeMap<String, String>,
    /// Upstream versions as banners show them, with the spelling of the package.
    #[serde(default)]
    pub(super) spelled: BTreeMap<String, String>,
    /// The form of a complete package version in its banner, if it shows one.
    #[serde(default)]
    pub(super) banner: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProductFile {
    product: Vec<toml::Spanned<ProductEntry>>,
}

impl ProductMap {
    /// The shipped products.
    ///
    /// # Errors
    ///
    /// Returns their fault; a test ensures that there is none.
    pub fn shipped() -> Result<Self, AdvisoryImportError> {
        Self::parse("products.toml", SHIPPED)
    }

    /// Reads a custom file.
    ///
    /// # Errors
    ///
    /// Returns its fault, with the position.
    pub fn read(path: &Path) -> Result<Self, AdvisoryImportError> {
        let name = path.display().to_string();
        let text = text_source::read_text(path, limits::FILE_OCTETS).map_err(|error| {
            AdvisoryImportError::Unreadable { file: name.clone(), error: std::io::Error::other(error) }
        })?;
        Self::parse(&name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, AdvisoryImportError> {
        let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let malformed = |at: usize, message: String| AdvisoryImportError::Malformed {
            place: format!("{name}:{}", line(at)),
            message,
        };
        if let Some(at) = toml_nesting::too_deep(text) {
            return Err(malformed(at.start, "brackets are nested too deeply".to_owned()));
        }
        let document: ProductFile = toml::from_str(text).map_err(|error| {
            malformed(error.span().map_or(0, |span| span.start), error.message().to_owned())
        })?;
        let mut known: Vec<String> = Vec::new();
        for spanned in &document.product {
            for package in &spanned.get_ref().packages {
                if check_name(package).is_err() {
                    return Err(malformed(spanned.span().start, format!("`{package}` is no source package")));
                }
                if known.contains(package) {
                    let message = format!("the package `{package}` belongs to another product already");
                    return Err(malformed(spanned.span().start, message));
                }
                known.push(package.clone());
            }
        }
        Ok(Self(document.product.into_iter().map(toml::Spanned::into_inner).collect()))
    }

    /// Returns the product of a source package.
    pub(super) fn of(&self, package: &str) -> Option<&ProductEntry> {
        self.0.iter().find(|product| product.packages.iter().any(|known| known == package))
    }

    /// Returns the packages of the software with the CPE name `vendor:product`, one for each product.
    pub(super) fn of_cpe(&self, software: &str) -> impl Iterator<Item = &str> {
        let called = move |product: &&ProductEntry| product.cpe.iter().any(|known| known == software);
        self.0.iter().filter(called).filter_map(|product| product.packages.first().map(String::as_str))
    }

    /// True if a package has a product.
    pub fn has(&self, package: &str) -> bool {
        self.of(package).is_some()
    }

    /// Returns every package that has a product.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|product| product.packages.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_products_are_well_formed() {
        let products = ProductMap::shipped().unwrap();
        assert!(products.has("openssh") && !products.has("linux"));
        assert!(products.packages().count() >= 20);
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, line, word) in [
            ("[[product]]\npackages = [\"a\"]\n", 1, "missing field"),
            ("\n[[product]]\nname = \"a\"\n", 3, "unknown field"),
            ("[[product]]\npackages = [\"a b\"]\nprotocol = \"ssh\"\nmatch = {}\n", 1, "no source package"),
        ] {
            let error = ProductMap::parse("p.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("p.toml:{line}: ")) && error.contains(word), "{error}");
        }
        let twice = "[[product]]\npackages = [\"a\"]\nprotocol = \"ssh\"\nmatch = {}\n".repeat(2);
        assert!(ProductMap::parse("p.toml", &twice).unwrap_err().to_string().contains("p.toml:5: "));
    }
}
