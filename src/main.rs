//! `oncebook`: arguments, and which part of the library they start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::{self, Config, Database, Role, Secret};
use oncebook::http::{asyncapi, openapi};
use oncebook::keys::{self, Keys};
use oncebook::serve::{self, Listeners};
use oncebook::store::{databases, janitor};
use oncebook::trace::export::Exporting;
use oncebook::{bench, conformance, dev, healthcheck, telemetry};
use tokio_util::sync::CancellationToken;

/// A clinic appointment service in which a command that arrives twice changes an appointment once.
#[derive(Parser)]
#[command(version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs the whole service with a Postgres of its own and a demo group to play with.
    Dev {
        /// Where it listens on 127.0.0.1.
        #[arg(long, default_value_t = 8080)]
        port: u16,
        /// Where it keeps everything.
        #[arg(long, default_value = ".oncebook")]
        data_dir: PathBuf,
        /// A database to use instead of a private Postgres. Its demo keys belong to one data dir: another that starts on
        /// it issues new ones, and those of the first work no more.
        #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
        database_url: Option<String>,
    },
    /// Serves the API against a database, in production.
    #[command(after_help = "ONCEBOOK_LOG_FILTER says what is logged, as tracing filters [default: warn,oncebook=info]")]
    Serve {
        #[command(flatten)]
        database: Database,
        /// What this process does.
        #[arg(long, env = "ONCEBOOK_ROLES", value_delimiter = ',', value_enum, default_values_t = Role::ALL)]
        roles: Vec<Role>,
        #[command(flatten)]
        config: Box<Config>,
    },
    /// Brings the database's schema up to date.
    Migrate {
        #[command(flatten)]
        database: Database,
    },
    /// Prints the OpenAPI document.
    Openapi,
    /// Prints the `AsyncAPI` document, or an event's JSON Schema.
    Asyncapi {
        /// The schema of an event alone.
        #[arg(long)]
        schema: bool,
    },
    /// Makes, lists and revokes API keys, on the database itself.
    Keys {
        #[command(flatten)]
        database: Database,
        #[command(subcommand)]
        keys: Keys,
    },
    /// Measures bookings and replays over HTTP beside pgbench running the same statements.
    Bench(bench::Options),
    /// Holds any running service to its contract, over HTTP.
    Conformance(conformance::Options),
    /// Checks that the audit is as it was when it was sealed; exits with 1 when it is not.
    Audit {
        #[command(flatten)]
        database: Database,
    },
    /// Asks a service on this machine whether it is alive; exits with 1 when it is not.
    Healthcheck {
        /// Where it listens.
        #[arg(long, env = "ONCEBOOK_LISTEN", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime");
    // One line says what is wrong; where in the program it showed helps nobody at a terminal.
    runtime.and_then(|runtime| runtime.block_on(run(cli.command))).unwrap_or_else(|error| {
        eprintln!("oncebook: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(command: What) -> anyhow::Result<ExitCode> {
    match command {
        What::Dev { port, data_dir, database_url } => Box::pin(develop(port, data_dir, database_url)).await?,
        What::Serve { database, roles, config } => {
            let database_url = url(database)?;
            serve::check(&config, &roles)?;
            let exporting = telemetry::log(true);
            let listeners = Listeners::bind(&config, &roles).await?;
            serve_until(*config, &database_url, &roles, listeners, serve::stop_on_signal()?).await?;
            end(exporting).await;
        }
        What::Migrate { database } => {
            let mut connection = databases::connect(&url(database)?).await?;
            databases::migrate(&mut connection).await.context("migrating")?;
            println!("The schema is up to date.");
        }
        What::Openapi => print!("{}", openapi::text()),
        What::Asyncapi { schema } => print!("{}", if schema { asyncapi::schema_text() } else { asyncapi::text() }),
        What::Keys { database, keys } => keys::run(&url(database)?, keys, &Clock::system(), &Ids::random()).await?,
        What::Bench(options) => Box::pin(bench::run(options)).await?,
        What::Conformance(options) => return Ok(check(options).await),
        What::Audit { database } => {
            let mut connection = databases::open(&url(database)?).await?;
            let broken = janitor::first_broken_seal(&mut connection).await.context("reading the audit")?;
            anyhow::ensure!(broken.is_none(), "seal {} does not fit the rows it covers", broken.unwrap_or_default());
            println!("Every seal of the audit fits the rows it covers.");
        }
        What::Healthcheck { listen } => healthcheck::healthcheck(listen)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The URL of the database; nothing is asked of it yet.
fn url(database: Database) -> anyhow::Result<String> {
    let url = database.database_url.filter(|url| !url.is_empty());
    let url =
        url.context("which database? Set DATABASE_URL, or give --database-url postgres://user:password@host/name")?;
    databases::options(&url).context("DATABASE_URL")?;
    Ok(url)
}

/// 0 where every promise held, 1 where one was broken; 2, as for arguments that make no sense, where none was checked.
async fn check(options: conformance::Options) -> ExitCode {
    match Box::pin(conformance::run(options)).await {
        // Its last line is the summary: a failed case is no error of the program's to be explained below it.
        Ok(summary) if summary.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oncebook: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Sends the last spans, where spans are sent.
async fn end(exporting: Option<Exporting>) {
    if let Some(exporting) = exporting {
        exporting.end().await;
    }
}

async fn develop(port: u16, data_dir: PathBuf, database_url: Option<String>) -> anyhow::Result<()> {
    let exporting = telemetry::log(false);
    let stop = serve::stop_on_signal()?;
    let options = dev::Options {
        data_dir,
        port,
        database_url: database_url.filter(|url| !url.is_empty()),
        path_var: config::path(),
        clock: Clock::system(),
        ids: Ids::random(),
    };
    let machine = dev::prepare(options).await?;
    let listen = (Ipv4Addr::LOCALHOST, port).into();
    let config = Config::from_environment();
    let config = Config {
        listen,
        rate_per_address: 0,
        rate_per_credential: 0,
        messages_folder: Some(machine.messages_folder()),
        encryption_key: config.encryption_key.or_else(|| Some(Secret(machine.encryption_key().to_owned()))),
        webhook_allow_private: true,
        ..config
    };
    serve::check(&config, &Role::ALL)?;
    let listeners = Listeners::bind(&config, &Role::ALL).await?;
    let address = listeners.api.as_ref().and_then(|api| api.local_addr().ok()).unwrap_or(listen);
    let base_url = format!("http://{address}");
    let announce = async {
        let announced = machine.announce(&base_url).await;
        if announced.is_err() {
            stop.cancel();
        }
        announced
    };
    let keep = async {
        let kept = machine.keep_running(&stop).await;
        stop.cancel();
        kept
    };
    let serve = async {
        let served = serve_until(config, machine.database_url(), &Role::ALL, listeners, stop.clone()).await;
        stop.cancel();
        served
    };
    let (announced, kept, served) = tokio::join!(announce, keep, serve);
    end(exporting).await;
    kept?;
    announced?;
    served?;
    machine.stop().await
}

async fn serve_until(
    config: Config,
    database_url: &str,
    roles: &[Role],
    listeners: Listeners,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let app = App::new(config, database_url, Clock::system(), Ids::random(), telemetry::metrics())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?roles, "starting");
    if let Some(api) = &listeners.api {
        tracing::info!(address = %api.local_addr()?, "serving the API");
    }
    if let Some(admin) = &listeners.admin {
        tracing::info!(address = %admin.local_addr()?, "serving metrics and readiness");
    }
    let looking = stop.clone();
    tokio::join!(
        Box::pin(serve::run(app, roles, listeners, stop)),
        looking.run_until_cancelled(Box::pin(serve::tell_why_away(database_url)))
    );
    Ok(())
}
