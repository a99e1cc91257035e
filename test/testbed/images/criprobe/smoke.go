package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// smokePod is a pod in the smoke test.
type smokePod struct {
	*probe
	config  *runtimeapi.PodSandboxConfig
	sandbox string
}

// smoke pulls an image, runs a pod with this image, sends a request to the pod, and stops
// and removes the pod. It returns at the first failed step, and removes the pod in any case.
func (p *probe) smoke(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	logs, err := os.MkdirTemp("", "criprobe")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(logs)) }()
	s := &smokePod{probe: p, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "smoke", Uid: "smoke", Namespace: "kpbed"},
		LogDirectory: logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kpbed/smoke"},
	}}
	defer func() {
		if s.sandbox != "" {
			err = errors.Join(err, p.remove(context.WithoutCancel(ctx), s.sandbox))
		}
	}()
	var container string
	for _, step := range []struct {
		name string
		run  func() (string, error)
	}{
		{"pull an image from the registry", func() (string, error) { return s.pull(ctx, "kubeparts.test/pulled:1") }},
		{"run a sandbox", func() (string, error) { return s.runSandbox(ctx) }},
		{"start a container", func() (_ string, err error) {
			container, err = s.start(ctx, "kubeparts.test/pulled:1")
			return container, err
		}},
		{"talk to the pod", func() (string, error) { return s.get(ctx) }},
		{"run a command in it", func() (string, error) { return s.exec(ctx, container) }},
		{"stop the container", func() (string, error) { return s.stop(ctx, container) }},
	} {
		begin := time.Now()
		detail, err := step.run()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("ok   %-32s %4d ms  %s\n", step.name, time.Since(begin).Milliseconds(), detail)
	}
	return nil
}

func (s *smokePod) pull(ctx context.Context, image string) (string, error) {
	r, err := s.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return r.GetImageRef(), err
}

func (s *smokePod) runSandbox(ctx context.Context) (string, error) {
	r, err := s.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config})
	s.sandbox = r.GetPodSandboxId()
	return s.sandbox, err
}

func (s *smokePod) start(ctx context.Context, image string) (string, error) {
	r, err := s.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.sandbox, SandboxConfig: s.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "web"},
			Image:    &runtimeapi.ImageSpec{Image: image},
			LogPath:  "web.log",
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = s.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.GetContainerId()})
	return r.GetContainerId(), err
}

// get sends requests to the pod's address until the pod responds.
func (s *smokePod) get(ctx context.Context) (string, error) {
	st, err := s.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.sandbox})
	if err != nil {
		return "", err
	}
	url := "http://" + st.GetStatus().GetNetwork().GetIp() + ":8080/"
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		body, err := fetch(ctx, url)
		if err == nil {
			return url + " " + strings.TrimSpace(body), nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-tick.C:
		}
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	return string(body), errors.Join(err, response.Body.Close())
}

func (s *smokePod) exec(ctx context.Context, container string) (string, error) {
	r, err := s.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: container, Cmd: []string{"/testserver", "echo", "hello"}, Timeout: 10,
	})
	if err == nil && string(r.GetStdout()) != "hello\n" {
		err = fmt.Errorf("it printed %q", r.GetStdout())
	}
	return "", err
}

func (s *smokePod) stop(ctx context.Context, container string) (string, error) {
	_, err := s.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container, Timeout: 10})
	if err != nil {
		return "", err
	}
	st, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
	if err == nil && st.GetStatus().GetExitCode() != 0 {
		err = fmt.Errorf("exit code %d, reason %s", st.GetStatus().GetExitCode(), st.GetStatus().GetReason())
	}
	return st.GetStatus().GetState().String(), err
}
