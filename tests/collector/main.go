// Command otelcol-test is the OpenTelemetry Collector that the tests of
// warpgauge send to. It is the real Collector: upstream's receiver, exporters
// and service, linked from their published Go modules with nothing replaced, so
// what it refuses, a production Collector of the same release refuses too.
//
// # Parts
//
//   - otlp receiver: what the agent speaks to, gRPC and HTTP
//   - file exporter: one JSON object per received request, which tests read
//   - debug exporter: the same for a person's eyes, on standard error
//   - prometheus_remote_write exporter: the way on to a real Prometheus
//
// There is no batch processor: one request in is one line out, so a test sees
// how the agent grouped its records.
//
// # Why pinned
//
// All modules are of one release: Collector 0.161.0 (its stable modules are
// numbered 1.67.0) and contrib 0.161.0, the newest whose modules all resolved when
// it was chosen. The JSON that the file exporter writes and the names that remote
// write derives are what the tests assert; they may change with any release and
// must not change on an unrelated day. Raise all versions in go.mod together, and
// version below, then run "go mod tidy".
//
// # Build and run
//
// In this folder:
//
//	CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
//	    -ldflags='-s -w' -o ../../target/collector/otelcol-test .
//
//	otelcol-test --config=config.yaml [--config=config-prometheus.yaml]
//
// The environment variables that the configuration reads are listed at the head
// of each file. It is ready when the OTLP port accepts a connection; on SIGTERM
// it writes what it holds and exits 0.
package main

import (
	"os"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusremotewriteexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// version is the release of the linked modules; see "Why pinned".
const version = "0.161.0"

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{
			Command:     "otelcol-test",
			Description: "OpenTelemetry Collector for the tests of warpgauge",
			Version:     version,
		},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				ProviderFactories: []confmap.ProviderFactory{
					envprovider.NewFactory(),
					fileprovider.NewFactory(),
					yamlprovider.NewFactory(),
				},
			},
		},
	})
	if command.Execute() != nil { // the command has printed the reason
		os.Exit(1)
	}
}

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](
		debugexporter.NewFactory(),
		fileexporter.NewFactory(),
		prometheusremotewriteexporter.NewFactory(),
	)
	if err != nil {
		return otelcol.Factories{}, err
	}
	return otelcol.Factories{
		Receivers: receivers,
		Exporters: exporters,
		Telemetry: otelconftelemetry.NewFactory(),
	}, nil
}
