// Command collector is an OpenTelemetry collector for tests. It receives OTLP over HTTP and
// writes each message as one line of OTLP JSON to standard output:
//
//	gateway -> OTLP/HTTP -> collector ADDRESS -> JSON lines -> test
//
// It is a separate module, so that the gateway does not depend on the collector.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// config is the configuration of the collector; %q is the address.
const config = `yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {lines: {}}
service: {pipelines: {traces: {receivers: [otlp], exporters: [lines]}}}
`

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: collector ADDRESS")
	}
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Description: "collector for tests", Version: "1"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{fmt.Sprintf(config, args[0])},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		return err
	}
	return collector.Run(context.Background())
}

// factories returns the components of the collector.
func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	writer := exporter.NewFactory(component.MustNewType("lines"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return lines{}, nil
		}, component.StabilityLevelDevelopment))
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](writer)
	f.Telemetry = telemetry.NewFactory(func() component.Config { return &struct{}{} })
	return f, err
}

// lines is an exporter.Traces that writes JSON lines.
type lines struct{}

// Start implements component.Component.
func (lines) Start(context.Context, component.Host) error { return nil }

// Shutdown implements component.Component.
func (lines) Shutdown(context.Context) error { return nil }

// Capabilities implements consumer.Traces.
func (lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeTraces implements consumer.Traces.
func (lines) ConsumeTraces(_ context.Context, all ptrace.Traces) error {
	data, err := (&ptrace.JSONMarshaler{}).MarshalTraces(all)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(data, '\n'))
	return err
}
