module github.com/kubeparts/kubeparts/test/cgroup2/guest

go 1.26.0
