"""The likeliest mistakes behind each kind of error: a table, and nothing else; `hints` looks things up in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A kind of error.

    Attributes
    ----------
    pattern
        Found in its message.
    hints
        What was likely done wrong, and what to do; the likeliest first.
    near_files
        The first group of the pattern is a file that is not there: ``{close}`` becomes what lies beside it.
    """

    pattern: str
    hints: tuple[str, ...]
    near_files: bool = False


CASES: tuple[Case, ...] = (
    Case(
        r"^(--(?:performance-)?report) .*(?:there is no folder|that is a folder)",
        (
            "the folder is not there: make it first",
            "a relative path counts from the current folder: give the whole path",
            "a report is one file, not a folder: name it, as in --report report.html",
        ),
    ),
    Case(
        r"^--(?:performance-)?report .*is no report",
        (
            "the name is that of an input: a report has a file of its own, as in --report report.html",
            "the shell made names of files of a wildcard, and the first was taken: write the name out",
            "the file is a report that was cut short: remove it",
        ),
    ),
    Case(
        r"no run of distsort wrote",
        (
            "the place is yours: name a new folder in it, as in -o results/sorted",
            "a report was written into the output: put it beside",
            "another program made it: see who reads it, and remove it yourself",
        ),
    ),
    Case(
        r"^(.+): (?:there is no such file or folder|no file matches)",
        (
            "the name is misspelt: there is {close}",
            "a relative path counts from the current folder: give the whole path",
            "the files are elsewhere: a bucket needs its URL, as in s3://bucket/in",
            "the shell keeps wildcards from a URL: put it in quotes, as in 's3://bucket/*.parquet'",
        ),
        near_files=True,
    ),
    Case(
        r"the folder holds no file to sort",
        (
            "names that begin with a dot or an underscore are passed over: rename the files, or name them one by one",
            "the folder is that of a job that failed: look at its parent for the data",
            "the files are not there yet: wait for what writes them",
        ),
    ),
    Case(
        r"^key '[\d.,bdfgiMhnRrV]+' is not a column of",
        (
            "GNU's -k 2,2 takes numbers of fields: here a key is the name of a column",
            "GNU's letters for numbers (-k 2n) are not needed: the type of the column says how to compare",
            "descending is said behind the name, as in -k price:desc, or by -r for all keys",
        ),
    ),
    Case(
        r"^key '[^']*,[^']*' is not a column of",
        (
            "several keys need several -k: -k price:desc -k name",
            "the CSV file has another delimiter, so that its header is read as one name: say --delimiter ';' or tab",
            "capitals and blanks count in names: write the column as the message has it",
        ),
    ),
    Case(
        r"^(?:key|column) .* is not a column of",
        (
            "capitals and blanks count in names: write the column as the message has it",
            "the CSV file has another delimiter, so that its header is read as one name: say --delimiter ';' or tab",
            "the name itself ends like an option (:asc, :desc, :first, :last): write \\: for its colon",
        ),
    ),
    Case(
        r"by= \(-k\) is missing",
        (
            "no key was given: add -k COLUMN, and :desc for the largest first",
            "lines are to be sorted as a whole, as GNU sort does: say --format text",
            "GNU's -k 2,2 takes numbers of fields: here a key is the name of a column",
        ),
    ),
    Case(
        r"^columns= .* more than once",
        (
            "a column is kept once: leave out its second name in --columns",
            "two columns of the files have one name: rename one of them first",
            "another column was meant: capitals and blanks count in names",
        ),
    ),
    Case(
        r"says again what was said|more than once: name each key once",
        (
            "each key takes one direction and one place for nulls: -k price:desc:first",
            "several keys need several -k: -k price:desc -k name",
            "the name itself ends like an option: write \\: for its colon",
        ),
    ),
    Case(
        r"is there already|there is an output already",
        (
            "an earlier run made it: read it, its _manifest.json says by what it is sorted",
            "it may go: add --overwrite, the old one stands until the new one is whole",
            "both are wanted: name another folder with -o",
        ),
    ),
    Case(
        r"the output (?:is the input itself|lies inside|would replace)",
        (
            "GNU's -o may be its input, a folder of parts may not: name another folder, and rename it afterwards",
            "the output was put into the folder of the input, which would then read it: put it beside",
            "a link leads from one to the other: both are compared as the real paths they are",
        ),
    ),
    Case(
        r"its name does not tell its format",
        (
            "the ending is unusual: say --format, for example --format csv",
            "a file that is no data lies in the folder: name the files, as in 'in/*.parquet'",
            "lines of text: say --format text, or end the name with .txt",
        ),
    ),
    Case(
        r"no multiple of the \d+ of a record|does not lie within records",
        (
            "records have another length: say --record-length, and --key-offset and --key-length of their key",
            "these are lines of text, not records: say --format text",
            "the file was cut short: compare its size with that of its source",
        ),
    ),
    Case(
        r"is not UTF-8 text",
        (
            "the file is no CSV: leave out --format, or name the right one",
            "it has another encoding: convert it, as in 'iconv -f latin1 -t utf8'",
            "it is compressed and its name does not say so: end it with .gz, .zst or what it is",
        ),
    ),
    Case(
        r"the file is empty: a CSV",
        (
            "what writes the file has failed, or is not done: look at its size with 'ls -l'",
            "it was meant to have no rows: write the line of column names all the same",
            "it is one of many and can be left out: name the other files, or move it away",
        ),
    ),
    Case(
        r"its delimiter, and|carriage return only",
        (
            "the delimiter is another: say --delimiter ';', or --delimiter tab",
            "a quote is opened and never closed: look at the row that is named",
            "the header is missing: a CSV file begins with a line of column names",
        ),
    ),
    Case(
        r"is not a whole (?:Parquet|Arrow) file|is not a \.npy file|cannot be read|is the file whole",
        (
            "the file is of another format than its name says: name the right one with --format",
            "it was cut short when it was copied, or is still being written: compare its size with that of its source",
            "another file lies in the folder: name the files to sort, as in 'in/*.parquet'",
        ),
    ),
    Case(
        r"is not in every file|is missing, but other files have it|its schema is not that of|write both with one type",
        (
            "a file of another table is among the input: name the files to sort",
            "a column was added or changed on the way: write the older files again with the newer schema",
            "only some columns are needed: keep these with --columns",
        ),
    ),
    Case(
        r"^the input mixes",
        (
            "other files lie in the folder: name those of one format, as in 'in/*.parquet'",
            "several formats are wanted: sort each by itself, and merge the results when they are of one format",
            "an ending is wrong: --format says what all files are",
        ),
    ),
    Case(
        r"has \d+ dimensions: save it with one",
        (
            "the array is to be sorted as a whole: save it flat, as in numpy.save('flat.npy', a.ravel())",
            "one column of it is wanted: save that alone, as in numpy.save('first.npy', a[:, 0])",
            "its rows are to be sorted by a column: write it as Parquet or CSV, and name the column with -k",
        ),
    ),
    Case(
        r"has no order|has values that|mixes types|has \d+ dimensions",
        (
            "the column holds lists or structs: sort by one of their fields, written as a column of its own",
            "numbers and text are mixed in one column: write it with one type",
            "another column was meant: 'distsort sort --help' says how keys are written",
        ),
    ),
    Case(
        r"of memory are too few",
        (
            "a number without a unit counts in KiB as GNU sort's does: write -S 2G",
            "what cannot be cut is larger than the memory given: give what the message says, or write smaller pieces",
            "workers of a cluster hold more together: leave -S out and add --workers or --scheduler",
        ),
    ),
    Case(
        r"is not a size|is not a time",
        (
            "the unit is unknown: K, M, G and T, or '1.5 GiB' and '64 MB'",
            "a blank divides it from its unit: put it in quotes, as in -S '2 GiB'",
            "a time was given where a size is wanted, or the reverse: 'distsort info' shows the defaults",
        ),
    ),
    Case(
        r"^distsort\.[\w.-]+=.*: it must be (?:more|0 or|a )",
        (
            "the default is good in most cases: leave the setting out",
            "the environment (DASK_DISTSORT__...) or a file of Dask's sets it: 'distsort info' shows all",
            "null or 0 was to mean no limit: give a large value instead, as in --conf files.part-size=1GiB",
        ),
    ),
    Case(
        r"memory= is for a sort in this process",
        (
            "-S limits one process: leave it out, workers have limits of their own (dask worker --memory-limit)",
            "a cluster is not needed: leave out --scheduler, --workers or --gpus",
            "DASK_SCHEDULER_ADDRESS is set in the environment: unset it",
        ),
    ),
    Case(
        r"no scheduler answers",
        (
            "the port is that of the dashboard: the scheduler's is 8786 by default, as in tcp://host:8786",
            "no scheduler is up: start one with 'dask scheduler', or use --workers N on this machine",
            "it wants encryption, or a firewall is between: try tls://, and 'distsort info --scheduler ADDRESS'",
        ),
    ),
    Case(
        r"--scheduler-file .*no such file",
        (
            "the scheduler has not started yet: wait for the file, as the job scripts do",
            "the folder is not shared between the hosts: put the file where both see it",
            "the address is known: give it with --scheduler",
        ),
    ),
    Case(
        r"name one place to run",
        (
            "several places were given: keep one of --scheduler, --scheduler-file, --workers, --gpus",
            "GPUs of a cluster that is up: give --scheduler and --backend cupy",
            "workers and GPUs of this machine: --gpus N starts a worker for each",
        ),
    ),
    Case(
        r"--gpus \d+",
        (
            "cupy or dask-cuda is not installed: pip install 'distsort[cuda13]'",
            "CUDA_VISIBLE_DEVICES hides them: 'distsort info' shows what is seen",
            "fewer are there: ask for as many as 'nvidia-smi -L' lists",
        ),
    ),
    Case(
        r"needs a GPU|CUDA finds none|cupy is not installed",
        (
            "no GPU is seen here: leave out --backend, numpy sorts too",
            "the driver is older than cupy's CUDA: 'distsort info' and 'nvidia-smi' show both",
            "the GPUs are on a cluster: name it with --scheduler",
        ),
    ),
    Case(
        r"^filter",
        (
            "a text needs no quotes of its own, but the shell's: --where 'carrier = UA'",
            "only Parquet files are filtered as they are read: write others as Parquet first",
            "the value is of another type than the column: write it as the column has it",
        ),
    ),
    Case(
        r"is for (?:records|files with columns|Parquet)|have the one key|is not for \.npy",
        (
            "records, text and .npy files have one key and no columns: leave out -k, --columns and --where",
            "--record-length, --key-offset and --key-length are for records: say --format records",
            "the format was told from the name, and wrongly: say --format",
        ),
    ),
    Case(
        r"[Cc]redential|AccessDenied|Forbidden|token has expired",
        (
            "the bucket wants credentials: set them as its library wants, as in AWS_ACCESS_KEY_ID",
            "they are set here, but not on the workers: set them there too",
            "they may not do this: ask who owns the bucket",
        ),
    ),
    Case(
        r"--performance-report .* bokeh",
        (
            "bokeh is not installed: pip install 'bokeh>=3.1'; with --workers or --gpus the scheduler runs here",
            "it is installed here, but not on the host of the scheduler: install it there, and start that anew",
            "our own report was meant: --report FILE.html needs no bokeh",
        ),
    ),
    Case(
        r"--performance-report",
        (
            "threads of this process make none: add --workers N",
            "our own report was meant: --report FILE.html, it needs no cluster",
            "the scheduler of the environment was expected: set DASK_SCHEDULER_ADDRESS",
        ),
    ),
    Case(
        r"^--conf ",
        (
            "the key is misspelt: 'distsort info' lists all of them with their values",
            "the equals sign is missing, or blanks are around it: --conf files.part-size=64MiB",
            "keys of Dask need their whole path: --conf distributed.comm.timeouts.connect=30s",
        ),
    ),
    Case(
        r"cannot be written .*No space left|No space left on device",
        (
            "the disk of the output is full: name another place",
            "runs fill the temporary folder: name a larger one with -T",
            "an earlier run was killed: the next one to the same place removes what it left",
        ),
    ),
    Case(
        r"[Pp]ermission denied|EACCES",
        (
            "the folder belongs to another user: 'ls -ld' shows whose it is",
            "the disk is mounted read-only: name another place",
            "workers run as another user than you: the folder must be theirs too",
        ),
    ),
    Case(
        r"no temporary folder can be made",
        (
            "the folder of -T is not there: make it first",
            "it is not writable for you: name another one with -T",
            "TMPDIR or Dask's temporary-directory leads there: change it",
        ),
    ),
    Case(
        r"^delimiter=|--delimiter",
        (
            "a tab is written as tab: --delimiter tab",
            "the shell took the character: put it in quotes, as in --delimiter ';'",
            "the fields are divided by more than one character: convert the file first",
        ),
    ),
    Case(
        r"Missing option '-o'",
        (
            "no output was named: add -o OUT, a folder that is made",
            "GNU sort writes to standard output, this does not: read the parts of OUT in order",
            "only whether it is sorted was asked: 'distsort check IN'",
        ),
    ),
    Case(
        r"Missing argument '(?:IN|PATH)",
        (
            "no input was named: give files, folders, wildcards or URLs",
            "standard input is not read: write it to a file first",
            "an option took the name as its value: put names before options",
        ),
    ),
    Case(
        r"No such option",
        (
            "the option belongs to another command: each one's --help lists its own",
            "GNU's -n, -f, -t and -g are not here: types and columns of the file say how to compare",
            "a file's name begins with a dash: write ./-name",
        ),
    ),
)
