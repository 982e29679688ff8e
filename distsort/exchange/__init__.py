"""The pull exchange: runs stay in stores on their workers, parts pull their slices.

pull           what the tasks do; the essay
handles        what they hand to each other
holder         what the exchange has of a worker: runs, threads, the way to its GPU
worker         the service on it: answers what others ask
reader         asks the others, with an end to every wait
promises       runs handed out before they are made
borrow         whole runs of others, mapped
store          runs on device, host and disk
spill          a run on disk, read slice by slice
transport      packed messages of host memory
device         CUDA IPC, UCX, pinned memory
device_narrow  what crosses in the place of dense keys
limiter        bytes in flight
scheduler      the plugin: life and recovery
news           what the plugin tells of a sort
page           where people see it
"""
