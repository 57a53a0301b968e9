//! Traces behind URLs: objects of S3, Google Cloud Storage and Azure, and files of web servers.
//!
//! An object is read in ranges, some of them ahead of the reader. The crate `object_store` finds credentials in
//! the environment, and repeats what fails for a moment. A thread of its own does the transfers.

#[cfg(feature = "parquet")]
mod blocks;
mod failure;
mod stream;

#[cfg(feature = "parquet")]
pub use blocks::Blocks;
pub use stream::Stream;

use crate::place::SCHEMES;
use bytes::Bytes;
use failure::{invalid, of_store};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{
    ClientConfigKey, ClientOptions, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt,
    ObjectStoreScheme, RetryConfig,
};
use std::env;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use url::Url;

/// The crate repeats for three minutes, which is long for one who waits for an error.
const RETRIES: usize = 5;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one range may take, unless the environment says otherwise: 7 KB/s are enough.
const RANGE_TIMEOUT: &str = "5 minutes";

/// What a URL names.
pub enum Named {
    /// A file of this machine.
    File(PathBuf),
    /// An object elsewhere.
    Object(Arc<Object>),
}

/// An object, of which ranges are read.
pub struct Object {
    held: Arc<Held>,
    /// Not in what transfers share: its last user must not be one of its own threads.
    runtime: Runtime,
}

/// An object in its store.
struct Held {
    store: Arc<dyn ObjectStore>,
    key: Key,
    /// As it was when it was opened.
    meta: ObjectMeta,
    /// The first tag that the store gave of it: a server may give one with data only.
    tag: OnceLock<String>,
    scheme: ObjectStoreScheme,
}

/// Finds what a URL names. Of an object its size is asked.
pub fn open(text: &str) -> io::Result<Named> {
    let url = Url::parse(text).map_err(|e| invalid(format!("it is no URL: {e}")))?;
    let (scheme, key) = ObjectStoreScheme::parse(&url).map_err(|e| {
        invalid(format!(
            "it cannot be read ({e}); read are URLs of {SCHEMES}"
        ))
    })?;
    if scheme == ObjectStoreScheme::Local {
        let path = url.to_file_path();
        return path
            .map(Named::File)
            .map_err(|()| invalid("it names no file of this machine"));
    }
    if url.query().is_some() {
        return Err(invalid(
            "a URL with a query (`?`) is not read; download the trace first, or name it as s3://, gs:// or az://",
        ));
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("futae-remote")
        .enable_all()
        .build()?;
    let store = store(&url, &scheme).map_err(|e| of_store(&e, &scheme))?;
    let meta = runtime
        .block_on(store.head(&key))
        .map_err(|e| of_store(&e, &scheme))?;
    let held = Arc::new(Held {
        store,
        key,
        tag: meta
            .e_tag
            .clone()
            .map_or_else(OnceLock::new, OnceLock::from),
        meta,
        scheme,
    });
    Ok(Named::Object(Arc::new(Object { held, runtime })))
}

fn store(url: &Url, scheme: &ObjectStoreScheme) -> object_store::Result<Arc<dyn ObjectStore>> {
    // Of two providers of cryptography this is the one that futae has. If there is one already, it stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    let timeout = |variable: &str| env::var_os(variable).is_none().then_some(RANGE_TIMEOUT);
    let key = ClientConfigKey::Timeout;
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let mut builder = AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_retry(retry);
            if let Some(timeout) = timeout("AWS_TIMEOUT") {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), timeout);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry);
            if let Some(timeout) = timeout("GOOGLE_TIMEOUT") {
                builder = builder.with_config(GoogleConfigKey::Client(key), timeout);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retry);
            if let Some(timeout) = timeout("AZURE_TIMEOUT") {
                builder = builder.with_config(AzureConfigKey::Client(key), timeout);
            }
            Arc::new(builder.build()?)
        }
        _ => {
            let options = ClientOptions::new()
                .with_allow_http(url.scheme() == "http")
                .with_config(key, RANGE_TIMEOUT);
            let server = &url[..url::Position::BeforePath];
            let builder = HttpBuilder::new().with_url(server).with_retry(retry);
            Arc::new(builder.with_client_options(options).build()?)
        }
    })
}

impl Object {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.held.meta.size
    }

    /// Begins to read a range that is in the object.
    fn begin(&self, range: Range<u64>) -> JoinHandle<io::Result<Bytes>> {
        self.runtime.spawn(Arc::clone(&self.held).range(range))
    }

    /// Waits for a range.
    fn wait(&self, range: JoinHandle<io::Result<Bytes>>) -> io::Result<Bytes> {
        self.runtime.block_on(range).map_err(io::Error::other)?
    }
}

impl Held {
    async fn range(self: Arc<Self>, range: Range<u64>) -> io::Result<Bytes> {
        let wanted = range.end - range.start;
        let options = GetOptions::new().with_range(Some(range));
        let failed = |e: object_store::Error| of_store(&e, &self.scheme);
        let got = self
            .store
            .get_opts(&self.key, options)
            .await
            .map_err(failed)?;
        let tag = got.meta.e_tag.as_ref();
        let is_another = |tag: &String| self.tag.get_or_init(|| tag.clone()) != tag;
        if got.meta.size != self.meta.size || tag.is_some_and(is_another) {
            let message = "the object was replaced while it was read; read it again";
            return Err(io::Error::other(message));
        }
        let bytes = got.bytes().await.map_err(failed)?;
        if bytes.len() as u64 != wanted {
            let message = format!(
                "the store sent {} of {wanted} bytes of a range",
                bytes.len()
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(bytes)
    }
}
