//! `oncebook`: arguments, and which part of the library they start.

use anyhow::Context;
use clap::{Parser, Subcommand};
use oncebook::app::App;
use oncebook::clock::{Clock, Ids};
use oncebook::config::Config;
use oncebook::{store, telemetry};
use tokio::net::TcpListener;
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
    /// Serves the API against the database named by DATABASE_URL.
    Serve {
        /// Postgres.
        #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
        database_url: String,
        #[command(flatten)]
        config: Config,
    },
    /// Brings the database's schema up to date.
    Migrate {
        /// Postgres.
        #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
        database_url: String,
    },
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(run(cli.command))
}

async fn run(command: What) -> anyhow::Result<()> {
    match command {
        What::Serve { database_url, config } => {
            telemetry::log(true);
            serve(config, &database_url).await
        }
        What::Migrate { database_url } => {
            store::migrate(&database_url).await.context("migrating")?;
            println!("The schema is up to date.");
            Ok(())
        }
    }
}

async fn serve(config: Config, database_url: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("listening on {}", config.listen))?;
    let app =
        App::new(config, database_url, Clock::system(), Ids::random(), telemetry::metrics()).context("DATABASE_URL")?;
    let stop = CancellationToken::new();
    tracing::info!(address = %listener.local_addr()?, "serving");
    app.serve(listener, stop).await.context("serving")
}
