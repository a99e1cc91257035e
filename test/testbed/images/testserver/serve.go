package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// serve serves HTTP until a signal:
//
//	/                              "testserver"
//	/env                           the environment, one variable a line
//	/healthz                       200, or 503 after /healthz/fail
//	/healthz/ok, /healthz/fail     change the responses of /healthz and of gRPC
//	/hang                          never responds
//
// With -grpc, it also serves the health protocol of gRPC at another address.
func serve(args []string, signals <-chan os.Signal) (int, error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	addr := flags.String("http", ":8080", "address")
	grpcAddr := flags.String("grpc", "", "address for gRPC, none by default")
	unhealthy := flags.Bool("unhealthy", false, "start unhealthy, as after a request of /healthz/fail")
	delay := flags.Duration("term-delay", 0, "time to continue serving after SIGTERM")
	code := flags.Int("term-exit", 0, "exit code after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}

	failed := make(chan error, 2)
	checks := health.NewServer()
	h := newHandler(func(well bool) {
		state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if well {
			state = grpc_health_v1.HealthCheckResponse_SERVING
		}
		checks.SetServingStatus("", state)
	}, !*unhealthy)
	if *grpcAddr != "" {
		listener, err := net.Listen("tcp", *grpcAddr)
		if err != nil {
			return 0, err
		}
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, checks)
		go func() { failed <- server.Serve(listener) }()
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return 0, err
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- server.Serve(listener) }()

	select {
	case err := <-failed:
		return 0, err
	case s := <-signals:
		fmt.Println("signal", s)
		// The server continues to serve meanwhile, like a draining server.
		rest(*delay, nil, false)
		lastWords("ended by " + s.String())
		fmt.Println("exit", *code)
		return *code, nil
	}
}

// newHandler calls tell for every change of health, and for the initial state.
func newHandler(tell func(well bool), well bool) http.Handler {
	var unhealthy atomic.Bool
	set := func(well bool) { unhealthy.Store(!well); tell(well) }
	set(well)
	mux := http.NewServeMux()
	say := func(pattern string, text func() string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text()+"\n") // an error means that the client has disconnected
		})
	}
	say("/{$}", func() string { return "testserver" })
	say("/env", func() string { return strings.Join(os.Environ(), "\n") })
	say("/healthz/ok", func() string { set(true); return "now ok" })
	say("/healthz/fail", func() string { set(false); return "now failing" })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if unhealthy.Load() {
			http.Error(w, "unhealthy, as requested by /healthz/fail or -unhealthy", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// get requests a page, and returns 1 unless the status is 200.
func get(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("get needs a URL")
	}
	answer, err := http.Get(args[0])
	if err != nil {
		fmt.Println(err)
		return 1, nil
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	if answer.StatusCode != http.StatusOK {
		return 1, nil
	}
	return 0, nil
}
