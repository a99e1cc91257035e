// Package filelock keeps two processes from using one folder: it locks a file in it.
package filelock
