// Package podlogs reads the logs that a CRI runtime writes for containers.
package podlogs
