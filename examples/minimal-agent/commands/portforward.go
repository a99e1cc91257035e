package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) portForward() command {
	var conn connection
	var in scope
	addresses := "localhost"
	return command{
		name: "port-forward", args: "POD [LOCAL:]REMOTE...", summary: "forward local ports to ports of a pod, until interrupted",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			in.register(f)
			f.StringVar(&addresses, "address", addresses, "addresses of this machine to listen on, separated by commas; localhost: 127.0.0.1 and ::1")
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) < 2 {
				return usagef("port-forward requires a pod and ports: %s port-forward POD [LOCAL:]REMOTE...", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			pod, err := find(ctx, client, in.arg(args[0]))
			if err != nil {
				return err
			}
			list, err := client.Pods(ctx)
			if err != nil {
				return err
			}
			ports, err := parsePorts(args[1:], definitionOf(list, pod))
			if err != nil {
				return Usage(err)
			}
			return p.forward(ctx, client, pod, ports, strings.Split(addresses, ","))
		},
	}
}

// definitionOf returns the definition of a pod, or an empty pod if no source defines the pod.
func definitionOf(list corev1.PodList, pod api.Pod) *corev1.Pod {
	for i := range list.Items {
		if string(list.Items[i].UID) == pod.UID {
			return &list.Items[i]
		}
	}
	return &corev1.Pod{}
}

// portPair is a local port and the port of the pod to which it is forwarded. The local port 0 means
// any free port.
type portPair struct{ local, remote uint16 }

// parsePorts parses [LOCAL:]REMOTE. REMOTE may be the name of a port of a regular container in
// the pod's definition. An empty LOCAL, as in :80, means any free port.
func parsePorts(texts []string, pod *corev1.Pod) (pairs []portPair, err error) {
	for _, text := range texts {
		local, remote, both := strings.Cut(text, ":")
		if !both {
			remote = local
		}
		var pair portPair
		if pair.remote, err = remotePort(remote, pod); err != nil {
			return nil, fmt.Errorf("port %q: %w", text, err)
		}
		switch {
		case !both:
			pair.local = pair.remote
		case local != "":
			n, err := strconv.ParseUint(local, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("port %q: the local port must be a number from 0 to 65535", text)
			}
			pair.local = uint16(n)
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

func remotePort(text string, pod *corev1.Pod) (uint16, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == text && text != "" {
				return uint16(port.ContainerPort), nil
			}
		}
	}
	return 0, errors.New("must be a number from 1 to 65535, or the name of a port of the pod")
}

// forward listens on the local ports, and forwards connections until ctx is done or the connection
// to the pod is lost, for example because the pod has ended.
func (p Program) forward(ctx context.Context, client *api.Client, pod api.Pod, pairs []portPair, addresses []string) error {
	ports, err := stream.DialPorts(ctx, client, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer ports.Close() // ends the connections
	out := &sharedWriter{out: p.Stdout}
	for _, pair := range pairs {
		listeners, err := listen(ctx, addresses, pair.local)
		if err != nil {
			return err
		}
		for _, listener := range listeners {
			defer func() { _ = listener.Close() }() // makes p.accept return
			if err := out.line("", fmt.Sprintf("Forwarding from %s -> %d", listener.Addr(), pair.remote)); err != nil {
				return err
			}
			work.Go(func() { p.accept(listener, ports, pair.remote, out, &work) })
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ports.Done():
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("lost connection to pod %s", printable.Line(fullName(pod)))
	}
}

// accept forwards connections until the listener is closed.
func (p Program) accept(listener net.Listener, ports *stream.Ports, remote uint16, out *sharedWriter, work *sync.WaitGroup) {
	_, local, _ := net.SplitHostPort(listener.Addr().String())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = out.line("", "Handling connection for "+local) // the forward matters more than this line
		work.Go(func() {
			if err := ports.Forward(conn, remote); err != nil {
				fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, printable.Lines(err.Error(), "  "))
			}
		})
	}
}

// listen listens on a port of each address. localhost means both loopback addresses. As in kubectl,
// it is no error if one of the two addresses can't be used. If the port is 0, all addresses use the
// same free port.
func listen(ctx context.Context, addresses []string, port uint16) (all []net.Listener, err error) {
	open := func(network, host string) error {
		l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			return err
		}
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			port = uint16(tcp.Port)
		}
		all = append(all, l)
		return nil
	}
	for _, address := range addresses {
		if address == "localhost" {
			err4, err6 := open("tcp4", "127.0.0.1"), open("tcp6", "::1")
			if err4 != nil && err6 != nil {
				err = errors.Join(err4, err6)
			}
		} else {
			err = open("tcp", address)
		}
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listen on the local port: %w", err)
		}
	}
	return all, nil
}
